"""Ring attention that PyTorch can differentiate. The only module of the package that imports torch."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ._core import UsageError
from .attention import RingAttention, for_arrays
from .stream import stream_handle


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    attention: Optional[RingAttention] = None,
    positions_q: Any = None,
    positions_k: Any = None,
    **arguments: Any,
) -> torch.Tensor:
    """out [batch, rows, num_heads, head_dim_v] of this rank's q [batch, rows, num_heads, head_dim], k [batch, rows,
    num_heads_kv, head_dim], v [.., head_dim_v]; float32, bfloat16 or float16, on the CPU or a GPU. Collective, and so
    is its backward: every rank differentiates, in the same order.

    attention: a RingAttention that the caller has built, for all layers and steps of one shape. Without it, the
    keyword arguments of ringattn.attention() say what to compute, and an object is built for this call and kept for
    its backward alone. There is no cache. Gradients of gradients are refused.

    On a GPU the work is queued on torch's current stream, as any other of torch's, and nothing waits for it. An
    attention that the caller has built has to be of that stream; without one, backend and stream follow from q.
    """
    if attention is None:
        if q.is_cuda:
            arguments.setdefault("backend", "cuda")
            arguments.setdefault("stream", torch.cuda.current_stream(q.device))
        attention = for_arrays(q, k, v, **arguments)
    elif arguments:
        raise UsageError(f"attention is given, and so is {next(iter(arguments))}, which it has decided already")
    out: torch.Tensor = _RingAttention.apply(q, k, v, attention, positions_q, positions_k)
    return out


def _check_stream(call: str, x: torch.Tensor, ring: RingAttention) -> None:
    """torch gives memory back in the order of its current stream, and orders its other work there."""
    if not x.is_cuda or ring.stream is None:
        return
    current = stream_handle(torch.cuda.current_stream(x.device))
    if current != ring.stream:
        ring._refuse(
            call, UsageError(f"torch's current stream is {current:#x}, the attention is of stream {ring.stream:#x}")
        )


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ring: RingAttention, at_q: Any, at_k: Any
    ) -> torch.Tensor:
        _check_stream("forward", q, ring)
        out, lse = ring.forward(q.detach(), k.detach(), v.detach(), positions_q=at_q, positions_k=at_k)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring, ctx.at_q, ctx.at_k = ring, at_q, at_k
        return out  # type: ignore[no-any-return]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: torch.Tensor) -> Any:
        # The gradient of a sum is one number with stride 0 everywhere; the library wants stride 1 along the last
        # dimension alone. autograd gives gradients in out's dtype.
        if dout.stride(-1) != 1:
            dout = dout.contiguous()
        _check_stream("backward", dout, ctx.ring)
        q, k, v, out, lse = (x.detach() for x in ctx.saved_tensors)
        dq, dk, dv = ctx.ring.backward(
            dout.detach(), q, k, v, out, lse, positions_q=ctx.at_q, positions_k=ctx.at_k
        )
        return dq, dk, dv, None, None, None
