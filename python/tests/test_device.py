"""What can be said of GPUs without one: who is refused, with which words, and what is planned."""

import ctypes

import numpy as np
import pytest
import reference

import ringattn
from ringattn import Communicator, DeviceError, RingAttention, UsageError
from ringattn.arrays import empty, on_cuda
from ringattn.stream import stream_handle

ONE = dict(num_heads=2, head_dim=4, seqlen_q=5, threads=1)


class OnDevice:
    """Says that it lies on a device; whoever exports it all the same has not listened."""

    shape, dtype = (1, 5, 2, 4), np.dtype(np.float32)

    def __init__(self, device_type):
        self.device_type = device_type

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, **_):
        raise AssertionError("exported")


class Mislabelled:
    """A capsule of DLPack (DLManagedTensor: data, then the device's type) that says what its object did not."""

    def __init__(self, array, device_type):
        self.array, self.device_type = array, device_type

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        address = get(capsule, b"dltensor")
        ctypes.c_int32.from_address(address + ctypes.sizeof(ctypes.c_void_p)).value = self.device_type
        return capsule


def arrays():
    return [np.zeros((1, 5, 2, 4), np.float32) for _ in range(3)]


WORDS = {2: "in cuda memory", 13: "in cuda memory", 8: "on DLPack device type 8"}  # CUDA, managed by it, Metal


@pytest.mark.parametrize("device_type", WORDS)
@pytest.mark.parametrize("wrap", [OnDevice, lambda t: Mislabelled(np.zeros((1, 5, 2, 4), np.float32), t)])
def test_arrays_on_a_gpu_are_refused_by_the_cpu(device_type, wrap):
    q, k, v = arrays()
    ring = RingAttention(**ONE)
    out = np.full((1, 5, 2, 4), 7, np.float32)
    with pytest.raises(UsageError, match=f"k is {WORDS[device_type]}, expected is host memory"):
        ring.forward(q, wrap(device_type), v, out=out)
    assert (out == 7).all()
    ring.forward(q, k, v, out=out)
    assert (out == 0).all()


def test_pinned_memory_is_the_hosts():
    q, k, v = arrays()
    v += 3
    out, _ = RingAttention(**ONE).forward(q, Mislabelled(k, 3), v)
    np.testing.assert_allclose(out, 3)


def test_an_output_like_an_array_on_a_gpu_is_the_callers_to_make():
    assert on_cuda(OnDevice(2)) and not on_cuda(np.zeros(3)) and not on_cuda([1.0])
    with pytest.raises(UsageError, match="OnDevice on a GPU: pass the arrays to be written"):
        empty(OnDevice(2), (1, 2, 3, 4))


def test_streams_have_one_address_whoever_holds_them():
    class Torch:
        cuda_stream = 0x7F00

    class CuPy:
        ptr = 0

    assert [stream_handle(x) for x in (5, 0, Torch(), CuPy())] == [5, 1, 0x7F00, 1]
    for wrong in (None, "1", 1.0, True, -1):
        with pytest.raises(UsageError, match="stream is .*, allowed are"):
            stream_handle(wrong)


def test_a_gpu_needs_a_stream_and_the_cpu_takes_none():
    with pytest.raises(UsageError, match="backend 'cuda' needs a stream"):
        RingAttention(**ONE, backend="cuda")
    with pytest.raises(UsageError, match="options.stream is 0x5; allowed with backend cpu is null"):
        RingAttention(**ONE, stream=5)
    with pytest.raises(UsageError, match="backend is 'tpu'; allowed are cpu and cuda"):
        RingAttention(**ONE, backend="tpu")


def test_a_ring_of_gpus_refuses_a_communicator_of_the_host_on_every_rank():
    results = reference.on_ranks(
        Communicator.threads(3), lambda end: RingAttention(**ONE, comm=end, deadline=20, backend="cuda", stream=5)
    )
    for result in results:
        assert isinstance(result, UsageError)
        assert "comm 'threads' moves host memory: make one for the stream out of it with ringattn.nccl" in str(result)


def test_a_gpu_that_is_not_there_is_a_DeviceError_with_the_reason():
    try:
        RingAttention(**ONE, backend="cuda", stream=1)
    except DeviceError as error:
        assert "CUDA" in str(error) or "driver" in str(error) or "device" in str(error)
    else:
        pytest.skip("this machine has a GPU")
    end = Communicator.one_rank()
    assert not end.on_device
    with pytest.raises(DeviceError):
        ringattn.staged(end, stream=1)
    with pytest.raises(DeviceError):
        ringattn.device_ranks(end, stream=1)


def test_the_cpu_has_nothing_left_to_settle():
    ring = RingAttention(**ONE)
    ring.forward(*arrays())
    assert ring.settle() is None


def test_a_plan_says_what_a_gpu_would_hold_and_send():
    of = dict(ranks=3, num_heads=4, num_heads_kv=2, head_dim=8, seqlen_q=23, dtype="bf16")
    cpu, cuda = (ringattn.plan(**of, backend=name) for name in ("cpu", "cuda"))
    assert cuda["hops"] == cpu["hops"] and cuda["pairs"] == cpu["pairs"]
    assert cuda["forward_traffic"]["messages"] == cpu["forward_traffic"]["messages"]
    # At least the rows themselves: 8 keys and 8 values of 2 heads in 2 bytes.
    assert cuda["forward_traffic"]["bytes"] >= 2 * 8 * 2 * 8 * 2
    assert cuda["backward_workspace"]["total"] > cuda["forward_workspace"]["total"] > 0
    with pytest.raises(UsageError, match="backend is 'gpu'"):
        ringattn.plan(**of, backend="gpu")
