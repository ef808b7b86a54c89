"""New arrays of the caller's own library, which is never imported here: its objects make them."""

from __future__ import annotations

import sys
from typing import Any, Sequence

import numpy as np

from ._core import UsageError

_DTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def dtype_name(x: Any) -> str:
    """The library's name of an array's element type: 'f32', 'bf16' or 'f16'."""
    name = str(getattr(x, "dtype", type(x).__name__)).rsplit(".", 1)[-1]
    if name not in _DTYPES:
        raise UsageError(f"q has element type {name}, allowed are float32, bfloat16 and float16")
    return _DTYPES[name]


def rows_of(x: Any, name: str) -> int:
    """Extent of dimension 1 of [batch, rows, heads, dim]."""
    return int(shape_of(x, name)[1])


def shape_of(x: Any, name: str) -> tuple[int, ...]:
    shape = tuple(int(n) for n in getattr(x, "shape", ()))
    if len(shape) != 4:
        raise UsageError(f"{name} has {len(shape)} dimensions, expected 4 [batch, rows of this rank, heads, dim]")
    return shape


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def on_cuda(x: Any) -> bool:
    """Whether an array says that it lies in the memory of an NVIDIA GPU (DLPack: 2 CUDA, 13 managed by CUDA)."""
    return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) in (2, 13)


def empty(like: Any, shape: Sequence[int], float32: bool = False) -> Any:
    """An array to be written, with the element type of `like` or float32: a torch tensor on its device where `like`
    is one, else NumPy's, which given_back() turns into what the caller uses."""
    if is_torch(like):
        return like.new_empty(tuple(shape), dtype=sys.modules["torch"].float32 if float32 else like.dtype)
    if on_cuda(like):
        raise UsageError(f"there is no output like a {type(like).__name__} on a GPU: pass the arrays to be written")
    dtype = np.dtype(np.float32) if float32 else getattr(like, "dtype", None)
    if not isinstance(dtype, np.dtype):
        raise UsageError(f"there is no output like a {type(like).__name__}: pass the arrays to be written")
    return np.empty(tuple(shape), dtype)


def given_back(like: Any, array: Any) -> Any:
    """`array` in the library of `like`. Libraries with immutable arrays, such as JAX, copy it."""
    if is_torch(like) or isinstance(like, np.ndarray):
        return array
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().asarray(array)
    return array
