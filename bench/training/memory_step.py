"""One training step on every rank, and the peak memory of each, as one line of JSON. Started by `memory`."""

import json
import resource
import sys

import torch
from mpi4py import MPI

import attention
import model
import train


def peak():
    """Largest resident size so far, in bytes (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    context, comm = int(sys.argv[1]), MPI.COMM_WORLD
    shape = model.Shape()
    attend, rows = attention.ring(shape, 1, context, "zigzag", comm)
    gpt = model.seeded(shape, attend, seed=1)
    tokens = torch.randint(0, 256, (1, context + 1), generator=torch.Generator().manual_seed(1))
    before = peak()
    train.loss_and_gradients(gpt, tokens, rows, comm)
    ranks = comm.gather({"rows": len(rows), "before": before, "peak": peak()})
    if comm.rank == 0:
        print(json.dumps(ranks))


if __name__ == "__main__":
    main()
