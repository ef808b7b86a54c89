"""Exact attention over sequences too long for one device: every rank holds a shard, blocks travel round a ring.

Arrays are [batch, rows of this rank, heads, head_dim] of any library that offers DLPack or the buffer protocol, on the
CPU or on NVIDIA GPUs, in float32, bfloat16 or float16. See attention() for one call, RingAttention for many,
ringattn.torch for training.
"""

from ._core import CommError, Communicator, DataError, DeviceError, Mask, OutOfMemory, Rope, UsageError
from .attention import RingAttention, attention
from .communicator import communicator, device_ranks, nccl, staged
from .layout import Layout, positions, shard, unshard
from .plan import plan

__all__ = [
    "CommError",
    "Communicator",
    "DataError",
    "DeviceError",
    "Layout",
    "Mask",
    "OutOfMemory",
    "RingAttention",
    "Rope",
    "UsageError",
    "attention",
    "communicator",
    "device_ranks",
    "nccl",
    "plan",
    "positions",
    "shard",
    "staged",
    "unshard",
]
