import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the torch binding is not tested")

import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ringattn import RingAttention, UsageError  # noqa: E402
from ringattn.torch import _check_stream, ring_attention  # noqa: E402


def inputs(dtype=torch.float32):
    torch.manual_seed(3)
    return [torch.randn(2, 37, heads, 8).to(dtype).requires_grad_() for heads in (6, 2, 2)]


def plain(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize("loss", [lambda out: out.sum(), lambda out: (out.transpose(1, 2) ** 2).mean()])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_gradients_are_those_of_torch(loss, checkpointed):
    q, k, v = inputs()
    ring = RingAttention(num_heads=6, num_heads_kv=2, head_dim=8, batch=2, seqlen_q=37, threads=1)
    if checkpointed:
        out = checkpoint(lambda *x: ring_attention(*x, attention=ring), q, k, v, use_reentrant=False)
    else:
        out = ring_attention(q, k, v, attention=ring)
    torch.testing.assert_close(out, plain(q, k, v))
    got = torch.autograd.grad(loss(out), (q, k, v))
    torch.testing.assert_close(got, torch.autograd.grad(loss(plain(q, k, v)), (q, k, v)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(dtype):
    q, k, v = inputs(dtype)
    out = ring_attention(q, k, v, threads=1)
    got = torch.autograd.grad(out.sum(), (q, k, v))
    assert out.dtype == dtype and all(x.dtype == dtype for x in got)
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    torch.testing.assert_close(out.float(), plain(*wide), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    q, k, v = inputs()
    with mode():
        out = ring_attention(q, k, v, threads=1)
    assert not out.requires_grad


def test_second_derivative_is_refused():
    q, k, v = inputs()
    (dq,) = torch.autograd.grad(ring_attention(q, k, v, threads=1).pow(2).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|differentiate twice"):
        dq.sum().backward()


def test_an_object_and_arguments_contradict():
    ring = RingAttention(num_heads=6, num_heads_kv=2, head_dim=8, batch=2, seqlen_q=37, threads=1)
    with pytest.raises(UsageError, match="mask"):
        ring_attention(*inputs(), attention=ring, mask="full")


class OnGpu:
    """As much of a CUDA tensor as is looked at before anything is computed."""

    is_cuda, device = True, "cuda:0"


def test_a_tensor_on_a_gpu_asks_for_that_backend_and_the_current_stream(monkeypatch):
    asked = {}

    def for_arrays(*_, **arguments):
        asked.update(arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("ringattn.torch.for_arrays", for_arrays)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the current one of {device}")
    with pytest.raises(KeyboardInterrupt):
        ring_attention(OnGpu(), OnGpu(), OnGpu(), threads=1)
    assert asked == {"threads": 1, "backend": "cuda", "stream": "the current one of cuda:0"}


@pytest.mark.parametrize("current, refused", [(0x70, False), (0x80, True), (0, True)])
def test_the_attention_has_to_be_of_torchs_current_stream(monkeypatch, current, refused):
    class Ring:
        stream = 0x70

        def _refuse(self, call, error):
            raise UsageError(f"{call}: {error}")

    class Stream:
        cuda_stream = current

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())
    if not refused:
        return _check_stream("forward", OnGpu(), Ring())
    words = f"forward: torch's current stream is {current or 1:#x}, the attention is of stream 0x70"
    with pytest.raises(UsageError, match=words):
        _check_stream("forward", OnGpu(), Ring())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_has_the_gradients_of_torch_on_its_current_stream():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        q, k, v = (x.detach().cuda().requires_grad_() for x in inputs())
        out = ring_attention(q, k, v, threads=1)
        got = torch.autograd.grad((out**2).sum(), (q, k, v))
        right = plain(q, k, v)
        torch.testing.assert_close(out, right, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got, torch.autograd.grad((right**2).sum(), (q, k, v)), rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_an_attention_of_another_stream_is_refused():
    ring = RingAttention(
        num_heads=6, num_heads_kv=2, head_dim=8, batch=2, seqlen_q=37, backend="cuda", stream=torch.cuda.Stream()
    )
    with pytest.raises(UsageError, match="torch's current stream is 0x1, the attention is of stream 0x"):
        ring_attention(*(x.detach().cuda() for x in inputs()), attention=ring)
