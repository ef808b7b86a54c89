// What RingAttention refuses in device memory, on every rank and by name, and that it is whole afterwards.
#include <gtest/gtest.h>

#include "comm/device_ranks.h"
#include "src/error.h"
#include "tests/attention_cuda/device_ring.h"
#include "tests/simt/run_kernel.h"

namespace ringattn::test {
namespace {

Problem small_problem() {
  return {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8}, .mask = Mask::causal(13, 13)};
}

// The text of each rank's Error; "" where there was none.
template <class Error>
std::vector<std::string> errors_of(int ranks, const std::function<void(RankThread&)>& body,
                                   Devices devices = Devices::own) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  const auto caught = [&](RankThread& me) {
    try {
      body(me);
    } catch (const Error& error) {
      texts[static_cast<std::size_t>(me.rank)] = error.what();
    }
  };
  on_ranks(ranks, caught, devices);
  return texts;
}

void expect_all(const std::vector<std::string>& texts, const std::vector<std::string>& parts) {
  for (const std::string& text : texts)
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "'";
}

RingAttention small_ring(const RankThread& me, std::shared_ptr<Communicator> comm) {
  return device_ring(me, std::move(comm), small_problem(), LayoutKind::zigzag);
}

std::shared_ptr<Communicator> device_ranks(const RankThread& me) {
  return make_device_ranks(me.host, me.stream);
}

TEST(DeviceRefusals, a_communicator_of_the_host_is_refused_with_the_way_out) {
  expect_all(errors_of<UsageError>(3, [](RankThread& me) { small_ring(me, me.host); }),
             {"threads moves host memory", "make_nccl_communicator, make_staged or make_device_ranks"});
}

TEST(DeviceRefusals, a_communicator_of_another_stream_is_refused_on_every_rank) {
  expect_all(errors_of<UsageError>(3,
                                   [](RankThread& me) {
                                     const auto comm = device_ranks(me);
                                     const simt::StreamOwner other;
                                     if (me.rank == 1) me.stream = other;
                                     small_ring(me, comm);
                                   }),
             {"rank 1: options.stream is 0x", "is bound to the stream 0x"});
}

TEST(DeviceRefusals, the_null_stream_is_refused) {
  expect_all(errors_of<UsageError>(2,
                                   [](RankThread& me) {
                                     const auto comm = device_ranks(me);
                                     me.stream = nullptr;
                                     small_ring(me, comm);
                                   }),
             {"options.stream is null", "cudaStreamLegacy"});
}

TEST(DeviceRefusals, the_cpu_takes_neither_a_stream_nor_a_communicator_of_devices) {
  const auto cpu_ring = [](const RankThread& me, std::shared_ptr<Communicator> comm, void* stream) {
    return RingAttention(std::move(comm), small_problem(),
                         Sharding::make(LayoutKind::zigzag, 13, 13, me.size),
                         {.threads = 1, .stream = stream});
  };
  expect_all(errors_of<UsageError>(2, [&](RankThread& me) { cpu_ring(me, me.host, me.stream); }),
             {"options.stream is 0x", "allowed with backend cpu is null"});
  expect_all(errors_of<UsageError>(2, [&](RankThread& me) { cpu_ring(me, device_ranks(me), nullptr); }),
             {"device(threads) moves device memory, and the backend is cpu"});
}

TEST(DeviceRefusals, ranks_with_different_backends_all_say_which) {
  expect_all(errors_of<UsageError>(3,
                                   [](RankThread& me) {
                                     const auto comm = device_ranks(me);
                                     if (me.rank != 1) small_ring(me, comm);
                                     RingAttention(me.host, small_problem(),
                                                   Sharding::make(LayoutKind::zigzag, 13, 13, 3),
                                                   {.threads = 1});
                                   }),
             {"rank 1: backend cpu, others cuda"});
}

// One rank, on device 0: tensors are spoiled one at a time, and each time the right ones are taken after.
struct Spoilt {
  const char* expected;
  std::function<void(DeviceTensors&)> spoil;
};

void expect_refused(const std::vector<Spoilt>& cases, bool backward) {
  on_ranks(1, [&](RankThread& me) {
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 13, 13, 1);
    const RankTensors host(small_problem(), sharding, 0, case_inputs(small_problem()));
    RingAttention ring = small_ring(me, me.host);
    const DeviceTensors good(host, 0);
    good.forward(ring);
    for (const Spoilt& one : cases) {
      DeviceTensors device(host, 0);
      one.spoil(device);
      try {
        if (backward)
          device.backward(ring);
        else
          device.forward(ring);
        ADD_FAILURE() << "accepted: " << one.expected;
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find(one.expected), std::string::npos) << error.what();
      }
    }
    good.forward(ring);
    good.backward(ring);
    ring.settle();
  });
}

TEST(DeviceRefusals, tensors_that_say_host_are_refused_by_name) {
  const auto host = MemorySpace::host;
  expect_refused({{"q is in host memory, this object computes in cuda memory",
                   [=](DeviceTensors& t) { t.q.space = host; }},
                  {"v is in host memory", [=](DeviceTensors& t) { t.v.space = host; }},
                  {"out is in host memory", [=](DeviceTensors& t) { t.out.space = host; }},
                  {"lse is in host memory", [=](DeviceTensors& t) { t.lse.space = host; }}},
                 false);
  expect_refused({{"dout is in host memory", [=](DeviceTensors& t) { t.dout.space = host; }},
                  {"dk is in host memory", [=](DeviceTensors& t) { t.dk.space = host; }}},
                 true);
}

TEST(DeviceRefusals, pointers_to_the_host_are_refused_by_name) {
  std::vector<float> pageable(1000);
  expect_refused({{"k points to host memory", [&](DeviceTensors& t) { t.k.data = pageable.data(); }},
                  {"out points to host memory", [&](DeviceTensors& t) { t.out.data = pageable.data(); }},
                  {"lse points to host memory", [&](DeviceTensors& t) { t.lse.data = pageable.data(); }}},
                 false);
  expect_refused({{"dq points to host memory", [&](DeviceTensors& t) { t.dq.data = pageable.data(); }}},
                 true);
  void* pinned = nullptr;
  cudaMallocHost(&pinned, 4000);
  expect_refused({{"q points to pinned host memory", [&](DeviceTensors& t) { t.q.data = pinned; }}}, false);
  cudaFreeHost(pinned);
}

TEST(DeviceRefusals, memory_of_another_device_is_refused_by_name) {
  cudaSetDevice(1);
  const DeviceBlock there(4000);
  cudaSetDevice(0);
  expect_refused({{"v lies on device 1, this rank computes on device 0",
                   [&](DeviceTensors& t) { t.v.data = there.bytes().data(); }}},
                 false);
}

TEST(DeviceRefusals, device_memory_is_refused_by_the_cpu) {
  on_ranks(1, [](RankThread& me) {
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 13, 13, 1);
    const RankTensors host(small_problem(), sharding, 0, case_inputs(small_problem()));
    RingAttention ring(me.host, small_problem(), sharding, {.threads = 1});
    try {
      DeviceTensors(host, 0).forward(ring);
      ADD_FAILURE() << "accepted";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "q is in cuda memory, this object computes in host memory");
    }
  });
}

TEST(DeviceRefusals, another_current_device_is_refused) {
  const auto texts = errors_of<UsageError>(2, [](RankThread& me) {
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 13, 13, 2);
    const RankTensors host(small_problem(), sharding, me.rank, case_inputs(small_problem()));
    const DeviceTensors device(host, 0);
    RingAttention ring = small_ring(me, device_ranks(me));
    if (me.rank == 1) cudaSetDevice(3);
    std::string text;
    try {
      device.forward(ring);
    } catch (const UsageError& error) {
      text = error.what();
    }
    cudaSetDevice(me.rank);
    device.forward(ring);
    ring.settle();
    throw UsageError(text);
  });
  expect_all(texts, {"rank 1: the current device is 3, when this object was made it was 1"});
}

TEST(DeviceRefusals, a_device_without_room_is_OutOfMemory_of_every_rank) {
  const std::size_t before = simt::config().device_bytes;
  const auto body = [](RankThread& me) {
    const auto comm = device_ranks(me);
    me.meet();
    if (me.rank == 0) {
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      simt::config().device_bytes = total - free + 100;
    }
    me.meet();
    small_ring(me, comm);
  };
  const auto texts = errors_of<OutOfMemory>(2, body, Devices::shared);
  simt::config().device_bytes = before;
  expect_all(texts, {"could not allocate", "bytes of device memory"});
}

// What CUDA reports may be about work that was queued long ago, and by others.
TEST(DeviceRefusals, an_error_of_the_device_is_a_DeviceError) {
  const auto texts = errors_of<DeviceError>(1, [](RankThread& me) {
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 13, 13, 1);
    const RankTensors host(small_problem(), sharding, 0, case_inputs(small_problem()));
    const DeviceTensors device(host, 0);
    RingAttention ring = small_ring(me, me.host);
    simt::noted(cudaErrorLaunchFailure);
    try {
      device.forward(ring);
    } catch (const DeviceError&) {  // what was queued before reads the tensors
      cudaStreamSynchronize(me.stream);
      throw;
    }
  });
  expect_all(texts, {"unspecified launch failure"});
}

}  // namespace
}  // namespace ringattn::test
