"""Rings from whatever the caller has: nothing, mpi4py, or one of ours."""

from __future__ import annotations

from typing import Any

from ._core import Communicator, UsageError
from .stream import stream_handle


def communicator(comm: Any = None) -> Communicator:
    """The ring of `comm`: None is one rank, an mpi4py communicator is duplicated (collective), ours is itself.

    A duplicate costs a collective call: programs that build many objects make it once and pass it to all of them.
    """
    if comm is None:
        return Communicator.one_rank()
    if isinstance(comm, Communicator):
        return comm
    if not type(comm).__module__.startswith("mpi4py"):
        raise UsageError(
            f"comm is a {type(comm).__name__}, allowed are None, an mpi4py communicator and ringattn.Communicator"
        )
    from mpi4py import MPI

    return Communicator._mpi(MPI._addressof(comm), MPI._sizeof(MPI.Comm), MPI.Get_library_version())


def nccl(comm: Any, *, stream: Any, nccl_comm: int = 0, deadline: float = 300.0) -> Communicator:
    """A ring whose blocks NCCL carries between GPUs, one of each rank. Collective.

    comm: as for communicator(); it carries agreements and errors. stream: the one that RingAttention will use, of the
    current device. nccl_comm: address of an ncclComm_t of the caller with the same ranks, which stays the caller's; 0:
    one is made. deadline: longest that making it, connecting and ending may take, in seconds.
    """
    return communicator(comm)._nccl(stream_handle(stream), nccl_comm, float(deadline))


def staged(comm: Any, *, stream: Any) -> Communicator:
    """A ring whose blocks go from GPU to GPU by way of pinned host memory and `comm`. Collective."""
    return communicator(comm)._staged(stream_handle(stream))


def device_ranks(comm: Communicator, *, stream: Any) -> Communicator:
    """A ring whose ranks are threads of this process (Communicator.threads), with a GPU each or all with one.
    Collective."""
    return communicator(comm)._device_ranks(stream_handle(stream))
