"""Attention as one writes it down in PyTorch, with the whole matrix of scores: exactly, or in the tensors' dtype."""

from __future__ import annotations

from typing import Any

import torch

from bridge import Case


def attention(case: Case, tensors: Any, exact: bool) -> tuple[torch.Tensor, ...]:
    """out, dq, dk, dv, [batch, seqlen, heads, dim]; in float64 if exact, every matrix in the dtype if not."""
    dtype = torch.float64 if exact else tensors.q.dtype
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in (tensors.q, tensors.k, tensors.v))
    group = case.heads // case.heads_kv
    heads_first = [x.transpose(1, 2) for x in (q, k.repeat_interleave(group, 2), v.repeat_interleave(group, 2))]
    scores = heads_first[0] @ heads_first[1].transpose(-1, -2) / case.head_dim**0.5
    scores = scores.masked_fill(~visible(case, scores.device), float("-inf"))
    out = (scores.softmax(-1) @ heads_first[2]).transpose(1, 2)
    gradients = torch.autograd.grad(out, (q, k, v), tensors.dout.to(dtype))
    return (out.detach(), *gradients)


def visible(case: Case, device: torch.device) -> torch.Tensor:
    """[seqlen, seqlen]: whether query i sees key j."""
    i = torch.arange(case.seqlen, device=device)[:, None]
    j = torch.arange(case.seqlen, device=device)[None, :]
    seen = torch.ones((case.seqlen, case.seqlen), dtype=torch.bool, device=device)
    if case.causal or case.window >= 0:
        seen &= j <= i
    return seen & (j >= i - case.window) if case.window >= 0 else seen


def errors(found: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """The largest of each of out, dq, dk, dv; NaN if anything is NaN."""
    names = ("out", "dq", "dk", "dv")
    return {name: float((a.double() - b).abs().max()) for name, a, b in zip(names, found, exact)}
