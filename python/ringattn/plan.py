"""What a rank would do and what it would cost, without doing it."""

from __future__ import annotations

from typing import Any

from . import _core
from .configuration import configuration


def plan(
    *, ranks: int, rank: int = 0, threads: int = 1, backend: str = "cpu", **problem: Any
) -> dict[str, Any]:
    """The plan of one rank as dicts, lists and numbers (JSON as it stands). Needs no MPI, for any number of ranks.

    backend: 'cpu' or 'cuda', which decides how many bytes a block has and what a rank holds. `problem`: the keyword
    arguments of RingAttention that describe it (num_heads, head_dim, mask, seqlen_q, ...).
    hops[s] has owner, k_rows, pairs and tiles {q: [begin, end], k: [begin, end], band: [lo, hi]} in local rows;
    forward_ and backward_ flops, traffic {bytes, messages} and workspace {kernel, slots, gradients, total} in bytes.
    """
    return _core.plan(configuration(ranks=ranks, **problem), rank, threads, backend)
