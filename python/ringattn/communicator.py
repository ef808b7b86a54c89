"""Rings from whatever the caller has: nothing, mpi4py, or one of ours."""

from __future__ import annotations

from typing import Any

from ._core import Communicator, UsageError


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
