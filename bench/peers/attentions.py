"""One attention, computed by ringattn and by each peer: the case, its input, and every contestant's way through it.

Each contestant keeps the tensors in the layout that is natural to it, is called as its users call it, and returns new
tensors. Its module is imported only in the process that measures it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import os
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Case:
    """A shape that all compute. dtype: f32 or bf16; mask: full or causal; batch 1, scale 1/sqrt(head_dim)."""

    seqlen: int
    head_dim: int
    heads: int = 8
    heads_kv: int = 8
    dtype: str = "f32"
    mask: str = "causal"

    @property
    def causal(self) -> bool:
        return self.mask == "causal"

    def flops(self, direction: str) -> float:
        """4 x visible pairs x head_dim per query head forward, 2.5 times that backward: ringattn's own convention."""
        pairs = self.seqlen * (self.seqlen + 1) // 2 if self.causal else self.seqlen**2
        return {"forward": 4.0, "backward": 10.0}[direction] * pairs * self.head_dim * self.heads

    def inputs(self) -> tuple[Array, Array, Array, Array]:
        """q, k, v and dout, [seqlen, heads, head_dim] each: normal with deviation 1, the same in every process."""
        random = np.random.default_rng(4)
        heads = (self.heads, self.heads_kv, self.heads_kv, self.heads)
        q, k, v, dout = (random.standard_normal((self.seqlen, n, self.head_dim), np.float32) for n in heads)
        return q, k, v, dout


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a contestant's process stands: its number, of how many, and with how many threads."""

    rank: int
    processes: int
    threads: int
    folder: pathlib.Path  # empty, for all processes of the contestant


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A contestant that is ready. forward() gives out, backward() gives (dq, dk, dv), as often as called."""

    forward: Callable[[], Any]
    backward: Callable[[], Any]
    numpy: Callable[[Any], Array]  # one of those results as [rows, heads, head_dim]
    positions: npt.NDArray[np.int64]  # in the sequence, of this process's rows
    facts: dict[str, str]  # versions, and which kernel runs


def _torch_tensors(case: Case, positions: npt.NDArray[np.int64]) -> list[Any]:
    """q, k, v, dout of these rows, [1, rows, heads, head_dim], in the case's dtype."""
    import torch

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[case.dtype]
    return [torch.from_numpy(x[positions])[None].to(dtype) for x in case.inputs()]


def ringattn(case: Case, place: Place) -> Prepared:
    """ringattn's Python package, on one rank or as a ring over MPI."""
    import ringattn

    comm = None
    if place.processes > 1:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    layout = ringattn.Layout("zigzag" if case.causal else "contiguous", case.seqlen, place.processes)
    ring = ringattn.RingAttention(
        num_heads=case.heads,
        num_heads_kv=case.heads_kv,
        head_dim=case.head_dim,
        dtype=case.dtype,
        mask=case.mask,
        seqlen_q=case.seqlen,
        layout=layout,
        comm=comm,
        threads=place.threads,
    )
    positions = layout.positions(place.rank)
    q, k, v, dout = _torch_tensors(case, positions)
    out, lse = ring.forward(q, k, v)
    return Prepared(
        forward=lambda: ring.forward(q, k, v)[0],
        backward=lambda: ring.backward(dout, q, k, v, out, lse),
        numpy=lambda x: x[0].float().numpy(),
        positions=positions,
        facts={"ringattn": importlib.metadata.version("ringattn"), "kernel": ring.backend},
    )


def pytorch(case: Case, place: Place) -> Prepared:
    """PyTorch's scaled_dot_product_attention on the CPU, made to take its flash kernel."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(place.threads)
    positions = np.arange(case.seqlen)
    q, k, v, dout = (x.transpose(1, 2).contiguous() for x in _torch_tensors(case, positions))
    call = functools.partial(
        torch.nn.functional.scaled_dot_product_attention, is_causal=case.causal, enable_gqa=case.heads != case.heads_kv
    )

    def kernels() -> str:
        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
            call(q, k, v)
        return " ".join(sorted(e.key for e in seen.key_averages() if e.key.startswith("aten::_scaled_dot_product")))

    def forward() -> Any:
        with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return call(q, k, v)

    default = kernels()
    leaves = [x.requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        forced = kernels()
        out = call(*leaves)
    return Prepared(
        forward=forward,
        backward=lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True),
        numpy=lambda x: x[0].transpose(0, 1).detach().float().numpy(),
        positions=positions,
        facts={"torch": torch.__version__, "kernel": forced, "kernel by default": default},
    )


def openblas(case: Case, place: Place) -> Prepared:
    """Dense attention by sgemm of NumPy's OpenBLAS: two a block of queries forward, five backward (fp32).

    A block of 512 queries and all the keys it sees: the fastest of 128 to 1024 here, and twice as fast as the whole
    matrix at once. Threads take KV heads, each with a BLAS of one thread, so that softmax is parallel, too.
    """
    import threadpoolctl

    rows, length, scale = 512, case.seqlen, np.float32(case.head_dim**-0.5)
    group = case.heads // case.heads_kv
    q, k, v, dout = (np.ascontiguousarray(x.transpose(1, 0, 2)) for x in case.inputs())
    later = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
    pool = ThreadPoolExecutor(place.threads)
    threadpoolctl.threadpool_limits(1, "blas")
    lse = np.empty((case.heads, length), np.float32)

    def blocks(kv_head: int) -> Any:
        """Every block of the heads that share a KV head: head, its rows, its keys, scaled queries, masked scores."""
        buffer = np.empty(rows * length, np.float32)
        for head in range(kv_head * group, (kv_head + 1) * group):
            for begin in range(0, length, rows):
                block = slice(begin, min(begin + rows, length))
                keys = slice(0, block.stop if case.causal else length)
                scaled = q[head, block] * scale
                scores = buffer[: len(scaled) * keys.stop].reshape(len(scaled), keys.stop)
                np.matmul(scaled, k[kv_head, keys].T, out=scores)
                if case.causal:
                    scores[:, begin:] += later[: len(scaled), : len(scaled)]
                yield head, block, keys, scaled, scores

    def forward() -> Array:
        out = np.empty_like(q)

        def heads_of(kv_head: int) -> None:
            for head, block, keys, _, p in blocks(kv_head):
                top = p.max(axis=1, keepdims=True)
                np.exp(np.subtract(p, top, out=p), out=p)
                total = p.sum(axis=1, keepdims=True)
                np.divide(p @ v[kv_head, keys], total, out=out[head, block])
                lse[head, block] = (top + np.log(total))[:, 0]

        list(pool.map(heads_of, range(case.heads_kv)))
        return out

    out = forward()

    def backward() -> tuple[Array, Array, Array]:
        dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)

        def heads_of(kv_head: int) -> None:
            for head, block, keys, scaled, p in blocks(kv_head):
                np.exp(np.subtract(p, lse[head, block, None], out=p), out=p)
                dv[kv_head, keys] += p.T @ dout[head, block]
                ds = dout[head, block] @ v[kv_head, keys].T
                ds -= np.einsum("id,id->i", dout[head, block], out[head, block])[:, None]
                ds *= p
                np.multiply(ds @ k[kv_head, keys], scale, out=dq[head, block])
                dk[kv_head, keys] += ds.T @ scaled

        list(pool.map(heads_of, range(case.heads_kv)))
        return dq, dk, dv

    blas = next(x for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas")
    return Prepared(
        forward=forward,
        backward=backward,
        numpy=lambda x: x.transpose(1, 0, 2),
        positions=np.arange(length),
        facts={"numpy": np.__version__, "OpenBLAS": blas["version"], "kernel": blas["architecture"]},
    )


def ring_attention_pytorch(case: Case, place: Place) -> Prepared:
    """The ring of ring-attention-pytorch over gloo. It computes masked blocks, too: all its layouts cost the same."""
    import torch
    import torch.distributed as dist
    from ring_attention_pytorch import ring_flash_attn

    torch.set_num_threads(place.threads)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = f"file://{place.folder / 'gloo'}"
    dist.init_process_group("gloo", init_method=store, rank=place.rank, world_size=place.processes)
    positions = np.array_split(np.arange(case.seqlen), place.processes)[place.rank]
    *leaves, dout = _torch_tensors(case, positions)
    call = functools.partial(
        ring_flash_attn, causal=case.causal, bucket_size=512, ring_reduce_col=True, ring_size=place.processes
    )

    def forward() -> Any:
        with torch.no_grad():
            return call(*leaves)

    out = call(*(x.requires_grad_() for x in leaves))
    return Prepared(
        forward=forward,
        backward=lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True),
        numpy=lambda x: x[0].detach().float().numpy(),
        positions=positions,
        facts={
            "ring-attention-pytorch": importlib.metadata.version("ring-attention-pytorch"),
            "torch": torch.__version__,
        },
    )


def jax_ringattention(case: Case, place: Place) -> Prepared:
    """JAX's ringattention on host devices of one process, one a thread. Contiguous shards are all that it has."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={place.threads}"
    os.environ["JAX_PLATFORMS"] = "cpu"

    jax: Any = importlib.import_module("jax")
    from ringattention import ringattention as ring_attention

    options = {
        "causal_block_size": 1 if case.causal else None,
        "query_chunk_size": 512,
        "key_chunk_size": 512,
        "deterministic": True,
        "dropout_rng": None,
        "attn_pdrop": 0.0,
        "dtype": jax.numpy.float32,
        "policy": jax.checkpoint_policies.nothing_saveable,
        "precision": None,
        "prevent_cse": True,
    }
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("ring",))
    rows = jax.sharding.PartitionSpec(None, "ring", None, None)
    shards = jax.sharding.NamedSharding(mesh, rows)

    def shard(q: Any, k: Any, v: Any) -> Any:
        return ring_attention(q, k, v, None, None, None, "ring", True, options)

    ring = jax.jit(jax.shard_map(shard, mesh=mesh, in_specs=(rows, rows, rows), out_specs=rows, check_vma=False))
    q, k, v, dout = (jax.device_put(x[None], shards) for x in case.inputs())
    _, pull = jax.vjp(ring, q, k, v)
    pull_back = jax.jit(lambda residuals, gradient: residuals(gradient))
    return Prepared(
        forward=lambda: jax.block_until_ready(ring(q, k, v)),
        backward=lambda: jax.block_until_ready(pull_back(pull, dout)),
        numpy=lambda x: np.asarray(x)[0],
        positions=np.arange(case.seqlen),
        facts={"ringattention": importlib.metadata.version("ringattention"), "jax": jax.__version__},
    )


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A way to compute cases of some dtypes, and the processes that it takes; mpirun starts them where `mpi` is set."""

    prepare: Callable[[Case, Place], Prepared]
    processes: int = 1
    mpi: bool = False
    dtypes: tuple[str, ...] = ("f32",)


OURS = "ringattn"
BOTH = ("f32", "bf16")
# Section -> name -> contestant. JAX makes its ring of two devices of one process.
CONTESTANTS = {
    "alone": {
        OURS: Contestant(ringattn, dtypes=BOTH),
        "PyTorch": Contestant(pytorch, dtypes=BOTH),
        "OpenBLAS": Contestant(openblas),
    },
    "rings": {
        OURS: Contestant(ringattn, processes=2, mpi=True),
        "ring-attention-pytorch": Contestant(ring_attention_pytorch, processes=2),
        "JAX ringattention": Contestant(jax_ringattention),
    },
}
