import gc
import sys
import threading

import numpy as np
import pytest
import reference

import ringattn
from ringattn import Communicator, Mask, RingAttention, UsageError

ONE = dict(num_heads=2, head_dim=4, seqlen_q=5, threads=1)


def tensors(seqlen_q=23, seqlen_k=23, seed=1):
    rng = np.random.default_rng(seed)
    shapes = (2, seqlen_q, 6, 8), (2, seqlen_k, 2, 8), (2, seqlen_k, 2, 5), (2, seqlen_q, 6, 5)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("lengths", [(23, 23), (2, 3), (7, 4)])  # empty shards, queries that see nothing
def test_values_and_gradients_on_every_rank_are_those_of_float64(layout, ranks, lengths):
    q, k, v, dout = tensors(*lengths)
    layouts = tuple(ringattn.Layout(layout, n, ranks) for n in lengths)

    def body(end):
        ring = RingAttention(
            num_heads=6, num_heads_kv=2, head_dim=8, head_dim_v=5, batch=2, comm=end, threads=1, deadline=20,
            seqlen_q=lengths[0], seqlen_k=lengths[1], layout=layouts,
        )  # fmt: skip
        mine = [layouts[i].shard(x, end.rank) for i, x in ((0, q), (1, k), (1, v), (0, dout))]
        out, lse = ring.forward(*mine[:3])
        return (out, lse) + ring.backward(mine[3], *mine[:3], out, lse)

    results = reference.on_ranks(Communicator.threads(ranks), body)
    for result in results:
        if isinstance(result, Exception):
            raise result
    expected = reference.attention(q, k, v, reference.causal(*lengths), dout)
    for i, (side, axis) in enumerate(((0, 1), (0, 2), (0, 1), (1, 1), (1, 1))):
        whole = layouts[side].unshard([result[i] for result in results], axis)
        np.testing.assert_allclose(whole, expected[i], rtol=2e-5, atol=2e-5)


def test_length_is_the_sum_over_the_ranks_of_their_rows():
    q, k, v, _ = tensors()
    layout = ringattn.Layout("contiguous", 23, 3)
    parts = reference.on_ranks(
        Communicator.threads(3),
        lambda end: ringattn.attention(*(layout.shard(x, end.rank) for x in (q, k, v)), comm=end, threads=1),
    )
    np.testing.assert_allclose(
        layout.unshard(parts), reference.attention(q, k, v, reference.causal(23, 23))[0], rtol=2e-5, atol=2e-5
    )


def test_case_a38_calls_leave_nothing_behind():
    q, k, v, _ = tensors()
    first = ringattn.attention(q, k, v, threads=1)
    windowed = ringattn.attention(q, k, v, mask=Mask.window(23, left=5, right=0), threads=1)
    assert np.array_equal(first, ringattn.attention(q, k, v, threads=1))
    assert not np.array_equal(first, windowed)


def test_read_only_and_strided_inputs_give_the_same_bits_and_stay_as_they_are():
    q, k, v, _ = tensors()
    expected = ringattn.attention(q, k, v, threads=1)
    heads_first = np.ascontiguousarray(v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)  # case A17
    every_second = np.repeat(k, 2, axis=1)[:, ::2]
    for x in (q, every_second, heads_first):
        x.flags.writeable = False
    before = q.copy()
    assert np.array_equal(ringattn.attention(q, every_second, heads_first, threads=1), expected)
    assert np.array_equal(q, before)


def test_outputs_are_written_in_place_over_poison():
    q, k, v, dout = tensors()
    ring = RingAttention(num_heads=6, num_heads_kv=2, head_dim=8, head_dim_v=5, batch=2, seqlen_q=23, threads=1)
    out, dk = np.full_like(dout, np.nan), np.full_like(k, np.nan)
    given, lse = ring.forward(q, k, v, out=out)
    assert given is out and np.isfinite(out).all()
    assert ring.backward(dout, q, k, v, out, lse, dk=dk)[1] is dk
    assert np.isfinite(dk).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_sixteen_bit_elements_come_back_as_they_came(name):
    dtype = np.dtype(name) if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (x.astype(dtype) for x in tensors()[:3])
    out = ringattn.attention(q, k, v, threads=1)
    assert out.dtype == dtype
    expected = reference.attention(q, k, v, reference.causal(23, 23))[0]
    np.testing.assert_allclose(out.astype(float), expected, rtol=1e-2, atol=1e-2)


def test_last_stride_is_refused_by_name():
    q = np.zeros((1, 5, 2, 8), np.float32)
    with pytest.raises(UsageError, match="k has stride 2 along the last dimension"):
        RingAttention(**ONE).forward(q[..., :4], q[..., ::2], q[..., :4])


@pytest.mark.parametrize(
    "wrong, text",
    [
        (np.zeros((1, 5, 2, 4)), "k has element type float64, allowed are float32, bfloat16 and float16"),
        (np.zeros((1, 5, 2, 4), np.float16), "k has dtype f16, the problem has f32"),
        (np.zeros((1, 4, 2, 4), np.float32), r"k has shape \[1, 4, 2, 4\], expected \[1, 5, 2, 4\]"),
        (np.zeros((5, 2, 4), np.float32), "k has 3 dimensions, expected 4"),
        ("text", "k is a str that cannot be used"),
    ],
)
def test_wrong_array_of_one_rank_is_an_error_on_all(wrong, text):
    good = np.zeros((1, 5, 2, 4), np.float32)

    def body(end):
        ring = RingAttention(**{**ONE, "seqlen_q": 10}, comm=end, deadline=20)
        with pytest.raises(UsageError, match="rank 1: " + text):
            ring.forward(good, wrong if end.rank == 1 else good, good)
        return ring.forward(good, good, good)[0]  # the object is still of use

    for result in reference.on_ranks(Communicator.threads(2), body):
        if isinstance(result, Exception):
            raise result


def test_wrong_argument_of_one_rank_is_an_error_on_all():
    def body(end):
        mask = "casual" if end.rank else "causal"
        RingAttention(**ONE, mask=mask, comm=end, deadline=20)

    for result in reference.on_ranks(Communicator.threads(2), body):
        assert isinstance(result, UsageError) and "mask is 'casual'" in str(result)


def test_read_only_output_is_refused():
    x = np.zeros((1, 5, 2, 4), np.float32)
    out = np.zeros_like(x)
    out.flags.writeable = False
    with pytest.raises(UsageError, match="out is a ndarray that cannot be used"):
        RingAttention(**ONE).forward(x, x, x, out=out)


def test_unknown_keyword_is_refused():
    x = np.zeros((1, 5, 2, 4), np.float32)
    with pytest.raises(TypeError, match="dropout"):
        ringattn.attention(x, x, x, dropout=0.1)


def test_other_threads_run_while_it_computes():
    x = np.random.default_rng(1).standard_normal((1, 4096, 4, 64)).astype(np.float32)
    ring = RingAttention(num_heads=4, head_dim=64, seqlen_q=4096, mask="full", threads=1)
    count, inside, done = [0], threading.Event(), threading.Event()

    def counter():
        inside.wait()
        while not done.is_set():
            count[0] += 1
            done.wait(0.001)

    thread = threading.Thread(target=counter)
    thread.start()
    inside.set()
    ring.forward(x, x, x)
    progress = count[0]
    done.set()
    thread.join()
    assert progress > 5


def test_arrays_are_let_go():
    q, k, v, dout = tensors()
    ring = RingAttention(num_heads=6, num_heads_kv=2, head_dim=8, head_dim_v=5, batch=2, seqlen_q=23, threads=1)
    out, lse = ring.forward(q, k, v)
    ring.backward(dout, q, k, v, out, lse)
    counts = [sys.getrefcount(x) for x in (q, k, v, dout, out, lse)]
    for _ in range(5):
        ring.forward(q, k, v, out=out, lse=lse)
        ring.backward(dout, q, k, v, out, lse)
        with pytest.raises(UsageError):
            ring.forward(q, q, v)
    gc.collect()
    assert [sys.getrefcount(x) for x in (q, k, v, dout, out, lse)] == counts
