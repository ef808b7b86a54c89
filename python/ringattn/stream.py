"""The cudaStream_t of whatever stands for a stream."""

from __future__ import annotations

from typing import Any

from ._core import UsageError

# cudaStreamLegacy: the default stream by a name of its own. 0 would be ambiguous, and DLPack does not allow it.
_LEGACY = 1


def stream_handle(stream: Any) -> int:
    """The address of a stream: an int, a torch.cuda.Stream, or a cupy.cuda.Stream. Libraries call the default stream
    0; here that is cudaStreamLegacy, 1."""
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise UsageError(f"stream is {stream!r}, allowed are the address of a cudaStream_t and a torch or CuPy stream")
    return stream or _LEGACY
