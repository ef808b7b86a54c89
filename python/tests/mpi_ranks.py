"""Run under mpirun: the values of one rank, on the ranks of mpi4py's communicator and of its reversed duplicate."""

import numpy as np
import reference
from mpi4py import MPI

import ringattn

rng = np.random.default_rng(7)
q, k, v, dout = (rng.standard_normal((1, 13, heads, 8)).astype(np.float32) for heads in (4, 2, 2, 4))
expected = reference.attention(q, k, v, reference.causal(13, 13), dout)
world = MPI.COMM_WORLD
for comm in (world, world.Split(0, -world.rank)):
    end = ringattn.communicator(comm)
    assert (end.name, end.rank, end.size) == ("mpi", comm.rank, comm.size)
    layout = ringattn.Layout("zigzag", 13, comm.size)
    ring = ringattn.RingAttention(
        num_heads=4, num_heads_kv=2, head_dim=8, seqlen_q=13, layout=layout, comm=end, threads=1, deadline=30
    )
    mine = [layout.shard(x, comm.rank) for x in (q, k, v, dout)]
    out, lse = ring.forward(*mine[:3])
    for got, want, axis in zip((out, lse) + ring.backward(mine[3], *mine[:3], out, lse), expected, (1, 2, 1, 1, 1)):
        np.testing.assert_allclose(got, layout.shard(want, comm.rank, axis), rtol=2e-5, atol=2e-5)
    assert ring.comm.sent["messages"] == 3 * (comm.size - 1)
MPI.COMM_WORLD.Barrier()
if world.rank == 0:
    print("ranks agree with the reference")
