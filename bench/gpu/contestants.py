"""Who computes attention on the GPU: chapters of ringattn, and PyTorch's scaled_dot_product_attention by backend."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Optional

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import bridge
from bridge import Case, Refused

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Tensors:
    """q, k, v and dout of a case, [batch, seqlen, heads, dim], normally distributed."""

    def __init__(self, case: Case, seed: int = 1, device: str = "cuda") -> None:
        generator = torch.Generator(device=device).manual_seed(seed)

        def normal(heads: int, dim: int) -> torch.Tensor:
            shape = (case.batch, case.seqlen, heads, dim)
            return torch.randn(shape, generator=generator, device=device).to(DTYPES[case.dtype])

        self.q = normal(case.heads, case.head_dim)
        self.k, self.v = normal(case.heads_kv, case.head_dim), normal(case.heads_kv, case.dim_v)
        self.dout = normal(case.heads, case.dim_v)


class Ours:
    """A chapter. forward() and backward() queue a call; out and gradients are what they wrote last, NaN before."""

    def __init__(self, library: Any, chapter: str, case: Case, tensors: Tensors) -> None:
        self.case, self.tensors = case, tensors
        self.stream = torch.cuda.current_stream()
        self.kernel = bridge.Kernel(library, chapter, case, self.stream.cuda_stream)
        self.facts = {"kernel": self.kernel.name}
        nan = float("nan")
        self.out = torch.full_like(tensors.dout, nan)
        rows = (case.batch, case.heads, case.seqlen)
        self.lse = torch.full(rows, nan, device=tensors.q.device, dtype=torch.float32)
        self.gradients = tuple(torch.full_like(x, nan) for x in (tensors.q, tensors.k, tensors.v))

    def forward(self) -> None:
        t = self.tensors
        self.kernel.forward(*(x.data_ptr() for x in (t.q, t.k, t.v, self.out, self.lse)))

    def backward(self) -> None:
        t = self.tensors
        read = (t.dout, t.q, t.k, t.v, self.out, self.lse)
        self.kernel.backward(*(x.data_ptr() for x in read + self.gradients))

    def close(self) -> None:
        torch.cuda.synchronize()
        self.kernel.close()


class Peer:
    """SDPA with one backend forced. Raises Refused where that backend cannot do the case."""

    def __init__(self, name: str, case: Case, tensors: Tensors) -> None:
        if case.window >= 0 or (case.dim_v != case.head_dim and name == "flash"):
            raise Refused(f"{name} has no such case in scaled_dot_product_attention")
        self.case, self.backend, self.facts = case, BACKENDS[name], {"torch": torch.__version__}
        self.dout = tensors.dout.transpose(1, 2)
        self.leaves = [x.transpose(1, 2).detach().requires_grad_() for x in (tensors.q, tensors.k, tensors.v)]
        try:
            self.kept = self._call()  # the graph that backward() walks again and again
            self.out = self.kept.detach().transpose(1, 2)
        except RuntimeError as error:  # "No available kernel", and the reasons before it as warnings
            raise Refused(str(error).strip().splitlines()[0]) from None
        self.gradients: tuple[torch.Tensor, ...] = ()

    def _call(self) -> torch.Tensor:
        grouped = {"enable_gqa": True} if self.case.heads != self.case.heads_kv else {}
        with sdpa_kernel([self.backend]):
            return functional.scaled_dot_product_attention(*self.leaves, is_causal=self.case.causal, **grouped)

    def forward(self) -> None:
        with torch.no_grad():
            self.out = self._call().transpose(1, 2)

    def backward(self) -> None:
        found = torch.autograd.grad(self.kept, self.leaves, self.dout, retain_graph=True)
        self.gradients = tuple(x.transpose(1, 2) for x in found)

    def close(self) -> None:
        torch.cuda.synchronize()


def maker(library: Any, name: str) -> Callable[[Case, Tensors], Any]:
    if name in BACKENDS:
        return lambda case, tensors: Peer(name, case, tensors)
    return lambda case, tensors: Ours(library, name, case, tensors)


def timed(call: Callable[[], None], calls: int) -> float:
    """Seconds of a call between two events of the stream that everybody works on."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Norm of the difference over the norm; NaN if anything is NaN."""
    a, b = ours.double(), theirs.double()
    return float((a - b).norm() / b.norm())


@contextlib.contextmanager
def working_stream() -> Any:
    """A stream other than the default one, whose work waits for no other."""
    stream: Optional[torch.cuda.Stream] = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    torch.cuda.synchronize()
