"""Which global positions each rank holds, and moving arrays between the whole sequence and its shards."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
import numpy.typing as npt

from . import _core
from .arrays import empty, given_back, is_torch
from ._core import UsageError


class Layout(_core.Layout):
    """One sequence cut into shards: Layout(kind, seqlen, ranks), kind 'contiguous', 'zigzag' or 'striped'.

    Nothing must divide; a shard may be empty. custom() takes the caller's own segments.
    """

    @classmethod
    def custom(cls, seqlen: int, segments: Sequence[Sequence[tuple[int, int, int]]]) -> Layout:
        """One list of (begin, count, stride) per rank; every position is held exactly once."""
        return cls(seqlen, [[(begin, count, stride) for begin, count, stride in rank] for rank in segments])

    def positions(self, rank: int) -> npt.NDArray[np.int64]:
        """Global positions of the rank's rows, int64 [rows]."""
        parts = [begin + stride * np.arange(count, dtype=np.int64) for begin, count, stride in self.segments(rank)]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def shard(self, x: Any, rank: int, axis: int = 1) -> Any:
        """The rank's rows of x, which holds the whole sequence along `axis`. A view where one segment is all."""
        axis = self._axis(x.shape, axis, "x", self.seqlen)
        slices = [_slice(segment) for segment in self.segments(rank)]
        if len(slices) == 1:
            return x[_at(axis, slices[0])]
        shape = list(x.shape)
        shape[axis] = self.rows(rank)
        out = empty(x, shape)
        source = x if is_torch(x) else np.asarray(x)
        row = 0
        for piece, (_, count, _) in zip(slices, self.segments(rank)):
            out[_at(axis, slice(row, row + count))] = source[_at(axis, piece)]
            row += count
        return given_back(x, out)

    def unshard(self, shards: Sequence[Any], axis: int = 1) -> Any:
        """The whole sequence from the shards of all ranks, in rank order."""
        if len(shards) != self.ranks:
            raise UsageError(f"shards has {len(shards)} entries, the layout has {self.ranks} ranks")
        for rank, part in enumerate(shards):
            self._axis(part.shape, axis, f"shards[{rank}]", self.rows(rank))
        axis = axis % len(shards[0].shape)
        shape = list(shards[0].shape)
        shape[axis] = self.seqlen
        out = empty(shards[0], shape)
        for rank, part in enumerate(shards):
            part, row = part if is_torch(part) else np.asarray(part), 0
            for segment in self.segments(rank):
                out[_at(axis, _slice(segment))] = part[_at(axis, slice(row, row + segment[1]))]
                row += segment[1]
        return given_back(shards[0], out)

    @staticmethod
    def _axis(shape: Sequence[int], axis: int, name: str, rows: int) -> int:
        if not -len(shape) <= axis < len(shape):
            raise UsageError(f"axis is {axis}, {name} has {len(shape)} dimensions")
        if shape[axis] != rows:
            raise UsageError(f"{name} has {shape[axis]} rows along axis {axis}, expected {rows}")
        return axis % len(shape)


def _slice(segment: tuple[int, int, int]) -> slice:
    begin, count, stride = segment
    if stride < 0:  # a stop below 0 would count from the end
        stop = begin + (count - 1) * stride - 1
        return slice(begin, stop if stop >= 0 else None, stride)
    return slice(begin, begin + (count - 1) * stride + 1, stride)


def _at(axis: int, index: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (index,)


def shard(x: Any, layout: Layout, rank: int, axis: int = 1) -> Any:
    """layout.shard(x, rank, axis)."""
    return layout.shard(x, rank, axis)


def unshard(shards: Sequence[Any], layout: Layout, axis: int = 1) -> Any:
    """layout.unshard(shards, axis)."""
    return layout.unshard(shards, axis)


def positions(layout: Layout, rank: int) -> npt.NDArray[np.int64]:
    """layout.positions(rank)."""
    return layout.positions(rank)
