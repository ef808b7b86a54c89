"""From the caller's words to the problem that every rank must agree on."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

from . import _core
from ._core import Mask, Rope, UsageError
from .layout import Layout

MaskLike = Union[str, Mask]
LayoutLike = Union[str, Layout, Tuple[Layout, Layout]]


def mask_of(mask: MaskLike, seqlen_q: Optional[int], seqlen_k: Optional[int]) -> Mask:
    if isinstance(mask, Mask):
        for name, given, own in (("seqlen_q", seqlen_q, mask.seqlen_q), ("seqlen_k", seqlen_k, mask.seqlen_k)):
            if given is not None and given != own:
                raise UsageError(f"{name} is {given}, the mask is for {own}")
        return mask
    if mask not in ("full", "causal"):
        raise UsageError(f"mask is {mask!r}, allowed are 'full', 'causal' and a ringattn.Mask")
    if seqlen_q is None:
        raise UsageError(f"mask {mask!r} needs seqlen_q")
    return Mask.full(seqlen_q, seqlen_k) if mask == "full" else Mask.causal(seqlen_q, seqlen_k)


def layouts_of(layout: LayoutLike, mask: Mask, ranks: int) -> tuple[Layout, Layout]:
    if isinstance(layout, str):
        return Layout(layout, mask.seqlen_q, ranks), Layout(layout, mask.seqlen_k, ranks)
    if isinstance(layout, Layout):
        return layout, layout
    if isinstance(layout, tuple) and len(layout) == 2 and all(isinstance(x, Layout) for x in layout):
        return layout
    raise UsageError(f"layout is {layout!r}, allowed are a name, a ringattn.Layout, or one for q and one for k")


def rope_of(rope: Any) -> Optional[Rope]:
    if rope is None or isinstance(rope, Rope):
        return rope
    if isinstance(rope, str):
        return Rope(rope)
    raise UsageError(f"rope is {rope!r}, allowed are None, 'half', 'interleaved' and a ringattn.Rope")


def configuration(
    *,
    ranks: int,
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
) -> _core.Configuration:
    made = mask_of(mask, seqlen_q, seqlen_k)
    layout_q, layout_k = layouts_of(layout, made, ranks)
    return _core.Configuration(
        mask=made,
        layout_q=layout_q,
        layout_k=layout_k,
        batch=batch,
        num_heads=num_heads,
        num_heads_kv=num_heads if num_heads_kv is None else num_heads_kv,
        head_dim=head_dim,
        head_dim_v=head_dim if head_dim_v is None else head_dim_v,
        dtype=dtype,
        rope=rope_of(rope),
        softmax_scale=softmax_scale,
    )
