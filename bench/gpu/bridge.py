"""libgpu-acceptance-bridge.so (bridge.h) for Python: a chapter of the CUDA kernels on device pointers."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

DTYPES = {"f32": 0, "bf16": 1, "f16": 2}


class Refused(Exception):
    """A chapter that cannot do a shape, or not on this device. The text says why."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One attention call. `causal` cuts off what comes later, `window` what is more than so many keys before."""

    head_dim: int
    seqlen: int
    causal: bool
    batch: int = 1
    heads: int = 1
    heads_kv: int = 1
    head_dim_v: int = 0  # 0: head_dim
    dtype: str = "bf16"
    window: int = -1

    @property
    def dim_v(self) -> int:
        return self.head_dim_v or self.head_dim

    @property
    def mask(self) -> str:
        return f"window {self.window}" if self.window >= 0 else "causal" if self.causal else "full"

    @property
    def name(self) -> str:
        heads = f"{self.heads}/{self.heads_kv}" if self.heads != self.heads_kv else f"{self.heads}"
        dims = f"{self.head_dim}/{self.dim_v}" if self.dim_v != self.head_dim else f"{self.head_dim}"
        return f"{self.dtype} head_dim {dims}, {self.batch} x {self.seqlen}, {heads} heads, {self.mask}"

    @property
    def pairs(self) -> int:
        """Visible (query, key) pairs of one head."""
        rows = self.seqlen
        if self.window >= 0:
            return sum(min(i, self.window) + 1 for i in range(rows))
        return rows * (rows + 1) // 2 if self.causal else rows * rows

    def flops(self, direction: str) -> float:
        """4 x visible pairs x head_dim a head forward, 2.5 times that backward, whatever somebody computes."""
        forward = 2.0 * self.pairs * (self.head_dim + self.dim_v) * self.heads * self.batch
        return forward if direction == "forward" else 2.5 * forward


class Shape(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "batch seqlen_q seqlen_k num_heads num_heads_kv head_dim head_dim_v window_left window_right".split()
        )
    ] + [("dtype", ctypes.c_int32), ("backward", ctypes.c_int32)]


def shape_of(case: Case, backward: bool) -> Shape:
    return Shape(
        batch=case.batch,
        seqlen_q=case.seqlen,
        seqlen_k=case.seqlen,
        num_heads=case.heads,
        num_heads_kv=case.heads_kv,
        head_dim=case.head_dim,
        head_dim_v=case.dim_v,
        window_left=case.window,
        window_right=0 if case.causal or case.window >= 0 else -1,
        dtype=DTYPES[case.dtype],
        backward=1 if backward else 0,
    )


def load(path: str) -> Any:
    library = ctypes.CDLL(path)
    library.ringattn_bridge_open.restype = ctypes.c_void_p
    library.ringattn_bridge_open.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(Shape),
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_int64,
    ]
    library.ringattn_bridge_name.restype = library.ringattn_bridge_error.restype = ctypes.c_char_p
    library.ringattn_bridge_pairs.restype = ctypes.c_int64
    for name, pointers in (("name", 1), ("error", 1), ("pairs", 1), ("close", 1), ("forward", 6), ("backward", 10)):
        getattr(library, f"ringattn_bridge_{name}").argtypes = [ctypes.c_void_p] * pointers
    library.ringattn_bridge_close.restype = None
    return library


class Kernel:
    """Raises Refused when it is made, RuntimeError in calls. Pointers are integers, of dense tensors."""

    def __init__(self, library: Any, chapter: str, case: Case, stream: int, backward: bool = True) -> None:
        why = ctypes.create_string_buffer(1000)
        self.library, self.handle = library, None
        self.handle = library.ringattn_bridge_open(chapter.encode(), shape_of(case, backward), stream, why, len(why))
        if not self.handle:
            raise Refused(why.value.decode(errors="replace"))
        self.name = library.ringattn_bridge_name(self.handle).decode()
        if library.ringattn_bridge_pairs(self.handle) != case.pairs:
            raise RuntimeError(f"{case.name}: the library sees {library.ringattn_bridge_pairs(self.handle)} pairs")

    def forward(self, *pointers: int) -> None:
        """q, k, v, out, lse"""
        self._check(self.library.ringattn_bridge_forward(self.handle, *pointers))

    def backward(self, *pointers: int) -> None:
        """dout, q, k, v, out, lse, dq, dk, dv"""
        self._check(self.library.ringattn_bridge_backward(self.handle, *pointers))

    def close(self) -> None:
        if self.handle:
            self.library.ringattn_bridge_close(self.handle)
        self.handle = None

    def _check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(self.library.ringattn_bridge_error(self.handle).decode(errors="replace"))
