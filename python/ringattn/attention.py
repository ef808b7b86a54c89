"""The public object and the one call."""

from __future__ import annotations

import json
from typing import Any, NoReturn, Optional

from . import _core
from ._core import Communicator, UsageError
from .arrays import dtype_name, empty, given_back, rows_of, shape_of
from .communicator import communicator
from .configuration import LayoutLike, MaskLike, configuration
from .stream import stream_handle


class RingAttention:
    """Exact attention over a sequence spread over the ranks of a communicator.

    Collective: every rank constructs with the same arguments and then makes the same calls. Built once and used as
    often as wanted, by any number of layers; nothing is remembered between calls, so forward() calls may lie between
    one call's forward() and its backward(). An error of one rank's arguments is raised by every rank.

    mask: 'causal', 'full' (both need seqlen_q; seqlen_k defaults to it) or a Mask. layout: 'contiguous', 'zigzag',
    'striped', a Layout, or a pair of them for q and k. rope: None, 'half', 'interleaved' or a Rope. comm: None (one
    rank), an mpi4py communicator (duplicated) or a Communicator. dtype: 'f32', 'bf16', 'f16'. softmax_scale: default
    1/sqrt(head_dim). threads: of this rank, 0 = every CPU. deadline: longest wait for a peer in seconds.

    backend: 'cpu' or 'cuda', an NVIDIA GPU. With 'cuda' all arrays lie in the memory of the device that is current,
    here and in every call, and all work is queued on `stream` (an address, a torch or a CuPy stream): calls return
    before it has run, so what comes after them is queued there, too, or waits with settle(). comm is then None or what
    nccl(), staged() or device_ranks() made for that stream. isa: the instruction set, or the kernel's version on a GPU.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        num_heads_kv: Optional[int] = None,
        head_dim_v: Optional[int] = None,
        batch: int = 1,
        dtype: str = "f32",
        mask: MaskLike = "causal",
        seqlen_q: Optional[int] = None,
        seqlen_k: Optional[int] = None,
        layout: LayoutLike = "contiguous",
        rope: Any = None,
        softmax_scale: Optional[float] = None,
        comm: Any = None,
        threads: int = 0,
        deadline: float = 300.0,
        isa: str = "auto",
        backend: str = "cpu",
        stream: Any = None,
    ) -> None:
        self.comm: Communicator = communicator(comm)
        try:
            self.stream = None if stream is None else stream_handle(stream)
            self._compute = backend
            _check_backend(backend, self.stream, self.comm)
            self._configuration = configuration(
                ranks=self.comm.size,
                num_heads=num_heads,
                head_dim=head_dim,
                num_heads_kv=num_heads_kv,
                head_dim_v=head_dim_v,
                batch=batch,
                dtype=dtype,
                mask=mask,
                seqlen_q=seqlen_q,
                seqlen_k=seqlen_k,
                layout=layout,
                rope=rope,
                softmax_scale=softmax_scale,
            )
        except Exception as error:
            self.comm._refuse_construction(_text(error), deadline)
            raise
        self.batch, self.num_heads = batch, num_heads
        self.head_dim_v = head_dim if head_dim_v is None else head_dim_v
        self._core = _core.RingAttention(
            self.comm, self._configuration, threads, float(deadline), isa, backend, self.stream or 0
        )

    def forward(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        out: Any = None,
        lse: Any = None,
        positions_q: Any = None,
        positions_k: Any = None,
    ) -> tuple[Any, Any]:
        """(out, lse) of this rank's rows.

        q [batch, q_rows, num_heads, head_dim], k [batch, k_rows, num_heads_kv, head_dim], v [.., head_dim_v] -> out
        [batch, q_rows, num_heads, head_dim_v], lse float32 [batch, num_heads, q_rows], natural logarithm. Strides are
        free but the last. out and lse are written in place where they are given, else they are new. positions_q and
        positions_k, int64 [rows]: RoPE positions where they are not the global ones.
        """
        try:
            given = out is not None, lse is not None
            out = out if given[0] else empty(q, (self.batch, self.q_rows, self.num_heads, self.head_dim_v))
            lse = lse if given[1] else empty(q, (self.batch, self.num_heads, self.q_rows), float32=True)
        except Exception as error:
            self._refuse("forward", error)
        self._core.forward(q, k, v, out, lse, positions_q, positions_k)
        return out if given[0] else given_back(q, out), lse if given[1] else given_back(q, lse)

    def backward(
        self,
        dout: Any,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
        *,
        dq: Any = None,
        dk: Any = None,
        dv: Any = None,
        positions_q: Any = None,
        positions_k: Any = None,
    ) -> tuple[Any, Any, Any]:
        """(dq, dk, dv), shaped as q, k and v: gradients of a loss, given dout, its gradient with respect to out.

        q, k, v and positions as forward() was given them, out and lse as it gave them. dk and dv are sums over the
        queries of all ranks. dq, dk and dv are written in place where they are given.
        """
        try:
            new = [x is None for x in (dq, dk, dv)]
            dq = empty(q, shape_of(q, "q")) if new[0] else dq
            dk = empty(k, shape_of(k, "k")) if new[1] else dk
            dv = empty(v, shape_of(v, "v")) if new[2] else dv
        except Exception as error:
            self._refuse("backward", error)
        self._core.backward(dout, q, k, v, out, lse, dq, dk, dv, positions_q, positions_k)
        like = (q, k, v)
        written = (dq, dk, dv)
        return tuple(given_back(x, y) if n else y for x, y, n in zip(like, written, new))

    __call__ = forward

    def settle(self) -> None:
        """Waits until everything that was queued on the stream has run; raises what went wrong there. Not collective.
        On the CPU nothing is left to wait for."""
        self._core.settle()

    @property
    def q_rows(self) -> int:
        """Query rows of this rank."""
        return self._core.q_rows

    @property
    def k_rows(self) -> int:
        """Key rows of this rank."""
        return self._core.k_rows

    @property
    def backend(self) -> str:
        """The kernel's name, 'cpu/AVX3', 'cuda/plain'."""
        return self._core.backend

    @property
    def plan(self) -> dict[str, Any]:
        """This rank's plan, as ringattn.plan() gives it."""
        return _core.plan(self._configuration, self.comm.rank, self._core.threads, self._compute)

    @property
    def workspace(self) -> dict[str, int]:
        """Bytes held now beyond the caller's arrays: kernel, slots, gradients (from the first backward), total."""
        return self._core.workspace()

    def _refuse(self, call: str, error: Exception) -> NoReturn:
        self._core.refuse(call, _text(error))
        raise error


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: MaskLike = "causal",
    layout: LayoutLike = "contiguous",
    rope: Any = None,
    softmax_scale: Optional[float] = None,
    comm: Any = None,
    seqlen_q: Optional[int] = None,
    seqlen_k: Optional[int] = None,
    out: Any = None,
    return_lse: bool = False,
    positions_q: Any = None,
    positions_k: Any = None,
    threads: int = 0,
    deadline: float = 300.0,
    backend: str = "cpu",
    stream: Any = None,
) -> Any:
    """softmax(softmax_scale * q k^T) v over the visible keys; out, or (out, lse) with return_lse. Collective.

    q [batch, rows, num_heads, head_dim], k [batch, rows, num_heads_kv, head_dim], v [.., head_dim_v]: this rank's
    rows, in the order of the layout. seqlen_q and seqlen_k are the global lengths, by default the sums over the ranks
    of their rows. Builds an object for this one call and forgets it: loops build a RingAttention themselves.
    """
    ring = for_arrays(
        q,
        k,
        v,
        mask=mask,
        layout=layout,
        rope=rope,
        softmax_scale=softmax_scale,
        comm=comm,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        threads=threads,
        deadline=deadline,
        backend=backend,
        stream=stream,
    )
    result, lse = ring.forward(q, k, v, out=out, positions_q=positions_q, positions_k=positions_k)
    return (result, lse) if return_lse else result


def for_arrays(
    q: Any, k: Any, v: Any, *, comm: Any = None, deadline: float = 300.0, **arguments: Any
) -> RingAttention:
    """A RingAttention for arrays like these; lengths that are not given are the sums over the ranks. Collective."""
    ring = communicator(comm)
    found: dict[str, Any] = {}
    try:
        shapes = {name: shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
        found = {
            "rows": (rows_of(q, "q"), rows_of(k, "k")),
            "problem": {
                "batch": shapes["q"][0],
                "num_heads": shapes["q"][2],
                "num_heads_kv": shapes["k"][2],
                "head_dim": shapes["q"][3],
                "head_dim_v": shapes["v"][3],
                "dtype": dtype_name(q),
            },
        }
    except UsageError as error:
        found = {"error": str(error)}
    ranks = [json.loads(blob) for blob in ring._all_gather(json.dumps(found).encode(), float(deadline))]
    for rank, other in enumerate(ranks):
        if "error" in other:
            raise UsageError(other["error"] if ring.size == 1 else f"rank {rank}: {other['error']}")
    if not isinstance(arguments.get("mask", "causal"), _core.Mask):
        for i, name in enumerate(("seqlen_q", "seqlen_k")):
            if arguments.get(name) is None:
                arguments[name] = sum(other["rows"][i] for other in ranks)
    return RingAttention(comm=ring, deadline=deadline, **found["problem"], **arguments)


def _check_backend(backend: str, stream: Optional[int], comm: Communicator) -> None:
    """What the library says as well, in the words of this package."""
    if backend == "cuda" and stream is None:
        raise UsageError("backend 'cuda' needs a stream: torch.cuda.current_stream(), say")
    if backend == "cuda" and comm.size > 1 and not comm.on_device:
        raise UsageError(
            f"backend is 'cuda', and comm '{comm.name}' moves host memory: make one for the stream out of it with "
            "ringattn.nccl, ringattn.staged or ringattn.device_ranks"
        )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
