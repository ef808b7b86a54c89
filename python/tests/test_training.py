"""A model trained with ringattn takes the same course as one trained with dense attention. NumPy alone."""

import functools
import threading

import numpy as np
import numpy_gpt
import pytest
import reference

import ringattn

CONTEXT, STEPS = 61, 30  # a prime: no number of ranks divides it
TEXT = (
    b"The sequence is cut into shards, one for each rank. A rank keeps its queries and the state of its rows in place, "
    b"while blocks of keys and values travel round the ring and are attended to as they come. What a row has seen so "
    b"far is held as a maximum, a sum and an output that is not divided yet, so that blocks may come in any order and "
    b"the result is exact, not an estimate. On the way back the blocks travel once more. Each of them is followed, one "
    b"hop behind, by the gradients of its own keys and values, to which every rank adds what its queries have to say, "
    b"and the last hop takes them straight home. Nothing is padded and nothing has to divide: a shard may be longer "
    b"than its neighbour by a row, or empty. A training run is the plainest test of all that. If one gradient of one "
    b"rank were wrong, the weights would be wrong after the first step, and the loss after the second would tell."
)


@functools.lru_cache
def dense(dtype):
    attention = numpy_gpt.DenseAttention(CONTEXT, dtype)
    return np.array(numpy_gpt.train(attention, np.arange(CONTEXT), TEXT, STEPS, CONTEXT, dtype, lambda x: x))


class Total:
    """Sums the arrays of all ranks, which are threads, in rank order: every rank gets the same bits."""

    def __init__(self, ranks):
        self.parts, self.barrier = [None] * ranks, threading.Barrier(ranks, timeout=60)

    def of(self, rank, part):
        self.parts[rank] = part
        self.barrier.wait()
        result = sum(self.parts[1:], self.parts[0].copy())
        self.barrier.wait()
        return result


def on_the_ring(ranks, layout, threads, steps=STEPS, share=lambda rank, part: part):
    """Losses; share() is what a rank adds to a total."""
    total, shards = Total(ranks), ringattn.Layout(layout, CONTEXT, ranks)

    def body(end):
        ring = ringattn.RingAttention(
            num_heads=numpy_gpt.HEADS, num_heads_kv=numpy_gpt.HEADS_KV, head_dim=numpy_gpt.HEAD_DIM, comm=end,
            mask="causal", seqlen_q=CONTEXT, layout=shards, rope="half", threads=threads, deadline=60,
        )  # fmt: skip

        def add(part):
            return total.of(end.rank, share(end.rank, part))

        return numpy_gpt.train(ring, shards.positions(end.rank), TEXT, steps, CONTEXT, np.float32, add)

    results = reference.on_ranks(ringattn.Communicator.threads(ranks), body)
    for result in results:
        if isinstance(result, Exception):
            raise result
    assert all(result == results[0] for result in results)
    return np.array(results[0])


def test_the_hand_written_gradients_are_those_of_finite_differences():
    piece = np.frombuffer(TEXT, np.uint8)[: CONTEXT + 1].astype(np.int64)
    weights = numpy_gpt.parameters(np.float64)
    attention = numpy_gpt.DenseAttention(CONTEXT, np.float64)

    def loss(changed):
        run = numpy_gpt.Pass(changed, attention)
        return run.loss(piece[:-1], piece[1:], CONTEXT) / CONTEXT, run.gradients

    gradients, rng = loss(weights)[1], np.random.default_rng(2)
    for name, w in weights.items():
        direction = rng.standard_normal(w.shape)
        up, down = (loss(weights | {name: w + h * direction})[0] for h in (1e-5, -1e-5))
        slope = (gradients[name] * direction).sum()
        assert (up - down) / 2e-5 == pytest.approx(slope, rel=1e-6, abs=1e-8), name


def test_the_dense_run_learns_and_rounding_alone_moves_it_little():
    exact = dense(np.float64)
    assert exact[-1] < 0.75 * exact[0]
    np.testing.assert_allclose(dense(np.float32), exact, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])  # 2: a forward once read what the backward before it had left in scratch
@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_loss_on_the_ring_is_that_of_the_dense_run(ranks, layout, threads):
    np.testing.assert_allclose(on_the_ring(ranks, layout, threads), dense(np.float64), rtol=2e-5)


def test_a_gradient_that_misses_one_rank_is_seen():
    """The comparison can fail: without the last rank's gradient the losses part by far more than the bound."""
    losses = on_the_ring(3, "zigzag", 1, steps=5, share=lambda rank, part: part * (rank < 2 or part.size == 1))
    assert np.abs(losses / dense(np.float64)[:5] - 1).max() > 1e-3
