// Streams, events, memory kinds and status codes of the stand-in runtime. Right programs pass under every
// seed; with one wait removed the order check reports them under every seed, and shuffling alone gives wrong
// results under many.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "tests/simt/every_seed.h"
#include "tests/simt/memory.h"
#include "tests/simt/run_kernel.h"

namespace ringattn {
namespace {

using simt::DeviceArray, simt::FaultKind, simt::StreamOwner;

__global__ void add_one(const float* in, float* out) {
  ptx::store_global(out + threadIdx.x, ptx::load_global(in + threadIdx.x) + 1);
}

class Pinned {
 public:
  explicit Pinned(float value) {
    cudaMallocHost(&data, 32 * sizeof(float));
    std::fill(data, data + 32, value);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { cudaFreeHost(data); }
  float* data = nullptr;
};

enum class Missing { nothing, upload_wait, download_wait, final_sync, reuse_wait };

// Upload on one stream, compute on another, twice with the same buffers; the second result is downloaded on
// the first stream.
bool pipeline(Missing missing) {
  const StreamOwner copy, compute;
  cudaEvent_t uploaded, computed;
  cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&computed, cudaEventDisableTiming);
  const Pinned first(1), second(5), result(-1);
  const DeviceArray<float> in(32), out(32);
  for (int round = 0; round < 2; ++round) {
    // The first round must be over before its input is overwritten.
    if (round == 1 && missing != Missing::reuse_wait) cudaStreamWaitEvent(copy, computed);
    cudaMemcpyAsync(in.data(), round == 0 ? first.data : second.data, 128, cudaMemcpyHostToDevice, copy);
    cudaEventRecord(uploaded, copy);
    if (missing != Missing::upload_wait) cudaStreamWaitEvent(compute, uploaded);
    cuda::launch(add_one, dim3(1), dim3(32), 0, compute, in.data(), out.data());
    cudaEventRecord(computed, compute);
  }
  if (missing != Missing::download_wait) cudaStreamWaitEvent(copy, computed);
  cudaMemcpyAsync(result.data, out.data(), 128, cudaMemcpyDeviceToHost, copy);
  if (missing != Missing::final_sync) cudaStreamSynchronize(copy);
  bool right = true;
  for (int i = 0; i < 32; ++i) right = right && result.data[i] == 6;
  cudaDeviceSynchronize();
  return right;
}

TEST(Streams, EventsMakeAPipelineRightInEveryOrder) {
  simt::in_every_seed([] { EXPECT_TRUE(pipeline(Missing::nothing)); });
}
TEST(StreamFaults, MissingEventIsReportedInEveryOrder) {
  for (const Missing m : {Missing::upload_wait, Missing::download_wait, Missing::reuse_wait})
    simt::expect_fault(FaultKind::race, "not ordered after stream", [m] { pipeline(m); });
}
TEST(StreamFaults, MissingSynchronisationReadsWhatIsNotThereYet) {
  int wrong = 0;
  simt::in_every_seed([&] { wrong += !pipeline(Missing::final_sync); });
  EXPECT_GE(wrong, static_cast<int>(simt::kSeeds) / 2);  // the host's own loads are seen by nobody
}
TEST(StreamFaults, LateWorkAloneShowsMissingEventsInManyOrders) {
  const simt::Config before = simt::config();
  std::array<int, 2> wrong{};
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    simt::config().seed = seed;
    simt::config().race_check = false;
    EXPECT_TRUE(pipeline(Missing::nothing));
    wrong[0] += !pipeline(Missing::upload_wait);
    wrong[1] += !pipeline(Missing::download_wait);
  }
  simt::config() = before;
  for (const int w : wrong) EXPECT_GT(w, 10);
}
TEST(StreamFaults, WaitingForAnEventThatIsNeverRecordedAgainReturnsAtOnce) {
  const StreamOwner s;
  cudaEvent_t e;
  cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  EXPECT_EQ(cudaStreamWaitEvent(s, e), cudaSuccess);  // as CUDA: an event never recorded holds nobody up
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST(StreamFaults, TouchingMemoryBeforeItsStreamHasMadeIt) {
  simt::expect_fault(FaultKind::race, "write after write", [] {
    const StreamOwner a, b;
    struct Owner {
      float* p = nullptr;
      ~Owner() { cudaFree(p); }
    } memory;
    cudaMallocAsync(&memory.p, 128, a);
    cudaMemsetAsync(memory.p, 0, 128, b);  // another stream, no event
    cudaDeviceSynchronize();
  });
}

// ---------------------------------------------------------------- streams that end before their work has

void set_flag(void* flag) { *static_cast<bool*>(flag) = true; }
void say_done(void*) { std::fputs("the host function has run\n", stderr); }

// 128 bytes that the stream makes, writes and frees; nobody waits for it.
void use_memory_in_passing(cudaStream_t s) {
  float* p = nullptr;
  cudaMallocAsync(&p, 128, s);
  cuda::launch(add_one, dim3(1), dim3(32), 0, s, p, p);
  cudaFreeAsync(p, s);
}
std::size_t device_bytes_in_use() {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return total - free;
}

TEST(DestroyedStreams, DoTheirWorkWhenTheHostNextWaits) {
  simt::in_every_seed([] {
    bool done = false;
    const std::size_t before = device_bytes_in_use();
    {
      const StreamOwner s;
      use_memory_in_passing(s);
      cudaLaunchHostFunc(s, set_flag, &done);
    }
    EXPECT_FALSE(done);  // as late as can be
    EXPECT_EQ(device_bytes_in_use(), before + 128);
    cudaDeviceSynchronize();
    EXPECT_TRUE(done);
    EXPECT_EQ(device_bytes_in_use(), before);
  });
}

// An event of a stream that goes on holds the destroyed one back.
TEST(DestroyedStreams, DoTheirWorkAtTheLatestWhenTheRanksEnd) {
  simt::in_every_seed([] {
    std::array<bool, 3> done{}, before{}, behind{};
    std::array<cudaStream_t, 3> going_on{};
    simt::System::get().run_ranks(3, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      cudaStreamCreateWithFlags(&going_on[r], cudaStreamNonBlocking);
      cudaEvent_t e;
      cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
      cudaLaunchHostFunc(going_on[r], set_flag, &before[r]);
      cudaEventRecord(e, going_on[r]);
      const StreamOwner s;
      cudaStreamWaitEvent(s, e);
      use_memory_in_passing(s);
      cudaLaunchHostFunc(s, set_flag, &done[r]);
      cudaEventDestroy(e);
    });
    EXPECT_EQ(done, (std::array{true, true, true}));
    EXPECT_EQ(before, (std::array{true, true, true}));
    for (int r = 0; r < 3; ++r) EXPECT_EQ(simt::allocated_bytes(r), 0u);
    // What is queued on a stream that lives is not lost either.
    for (std::size_t r = 0; r < 3; ++r) {
      cudaLaunchHostFunc(going_on[r], set_flag, &behind[r]);
      cudaStreamSynchronize(going_on[r]);
      cudaStreamDestroy(going_on[r]);
    }
    EXPECT_EQ(behind, (std::array{true, true, true}));
  });
}

TEST(DestroyedStreams, AreAskedForTheirFaultsWhenTheRanksEnd) {
  simt::expect_fault(FaultKind::out_of_bounds, "cudaMemsetAsync runs after its memory was freed", [] {
    simt::System::get().run_ranks(2, [](int) {
      const StreamOwner s;
      const DeviceArray<float> memory(32);
      cudaMemsetAsync(memory.data(), 0, 128, s);
    });
  });
}

TEST(DestroyedStreams, DoTheirWorkAtTheLatestWhenTheProcessEnds) {
  EXPECT_EXIT(
      {
        {
          const StreamOwner s;
          use_memory_in_passing(s);
          cudaLaunchHostFunc(s, say_done, nullptr);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "the host function has run");
}

TEST(DestroyedStreams, EndTheProcessWithTheirFault) {
  EXPECT_EXIT(
      {
        {
          const StreamOwner s;
          const DeviceArray<float> memory(32);
          cudaMemsetAsync(memory.data(), 0, 128, s);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(1),
      "at the end of the process: .*cudaMemsetAsync runs after its memory was freed");
}

// Neither a hang, nor a leak for those who look for one at the end of the process.
TEST(DestroyedStreams, DoNotKeepTheProcessWithWorkThatCannotRun) {
  EXPECT_EXIT(
      {
        {
          const StreamOwner s;
          simt::System::get().push(*s, {"never", [] { return false; }, [] {}});
          use_memory_in_passing(s);
          cudaLaunchHostFunc(s, say_done, nullptr);
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(StreamFaults, FreeTheMemoryThatAStreamWasToFree) {
  simt::in_every_seed([] {
    const StreamOwner s;
    const std::size_t before = device_bytes_in_use();
    float* p = nullptr;
    cudaMallocAsync(&p, 128, s);
    cuda::launch(add_one, dim3(1), dim3(64), 0, s, p, p);  // twice as many threads as there are numbers
    cudaFreeAsync(p, s);
    EXPECT_THROW(cudaStreamSynchronize(s), simt::Fault);
    EXPECT_EQ(device_bytes_in_use(), before);
  });
}

TEST(StreamFaults, FreeingInAStreamWhatIsFreedAlready) {
  simt::expect_fault(FaultKind::usage, "its memory was freed before", [] {
    const StreamOwner s;
    float* p = nullptr;
    cudaMallocAsync(&p, 128, s);
    cudaFreeAsync(p, s);
    cudaFreeAsync(p, s);
    cudaStreamSynchronize(s);
  });
}

TEST(Streams, CopyFromPageableMemoryTakesTheBytesAtOnce) {
  simt::in_every_seed([] {
    const StreamOwner s;
    std::vector<float> host(32, 3.0f), back(32);
    const DeviceArray<float> device(32);
    cudaMemcpyAsync(device.data(), host.data(), 128, cudaMemcpyHostToDevice, s);
    host.assign(32, -1.0f);
    cudaMemcpyAsync(back.data(), device.data(), 128, cudaMemcpyDeviceToHost, s);  // and waits
    EXPECT_EQ(back, std::vector<float>(32, 3.0f));
  });
}
TEST(Streams, CopyFromPinnedMemoryReadsWhenItRuns) {
  const StreamOwner s;
  const Pinned host(3);
  const DeviceArray<float> device(32);
  cudaMemcpyAsync(device.data(), host.data, 128, cudaMemcpyHostToDevice, s);
  std::fill(host.data, host.data + 32, -1.0f);  // too early
  cudaStreamSynchronize(s);
  EXPECT_EQ(device.host(), std::vector<float>(32, -1.0f));
}
TEST(Streams, StridedCopyMovesRowsOnly) {
  const StreamOwner s;
  const DeviceArray<float> from(std::vector<float>{1, 2, 9, 3, 4, 9, 5, 6, 9}),
      to(std::vector<float>(8, 0.0f));
  EXPECT_EQ(cudaMemcpy2DAsync(to.data(), 8, from.data(), 12, 8, 3, cudaMemcpyDeviceToDevice, s), cudaSuccess);
  cudaStreamSynchronize(s);
  EXPECT_EQ(to.host(), (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0}));
  EXPECT_EQ(cudaMemcpy2DAsync(to.data(), 4, from.data(), 12, 8, 3, cudaMemcpyDeviceToDevice, s),
            cudaErrorInvalidValue);
}

TEST(RuntimeErrors, MisuseIsAStatusCodeAndRemembered) {
  const StreamOwner s;
  const DeviceArray<float> device(32);
  std::vector<float> host(32);
  cudaGetLastError();
  EXPECT_EQ(cudaSetDevice(simt::config().devices), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(device.data() + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host.data()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(device.data(), host.data(), 4, cudaMemcpyDeviceToHost, s),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemsetAsync(host.data(), 0, 4, s), cudaErrorInvalidValue);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
}
TEST(RuntimeErrors, LaunchesThatTheHardwareRefuses) {
  const StreamOwner s;
  const DeviceArray<float> a(32);
  const auto code = [&](dim3 grid, dim3 block, std::size_t shared) {
    cudaGetLastError();
    cuda::launch(add_one, grid, block, shared, s, a.data(), a.data());
    return cudaGetLastError();
  };
  EXPECT_EQ(code(dim3(1), dim3(32), 0), cudaSuccess);
  EXPECT_EQ(code(dim3(0), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(code(dim3(1), dim3(1025), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(code(dim3(1, 65536), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(code(dim3(1), dim3(32), 49153), cudaErrorInvalidValue);  // over 48 KiB needs the attribute
  EXPECT_EQ(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000), cudaSuccess);
  EXPECT_EQ(code(dim3(1), dim3(32), 49153), cudaSuccess);
  cudaDeviceSynchronize();
}
TEST(RuntimeErrors, DeviceMemoryRunsOut) {
  const simt::Config before = simt::config();
  std::size_t free = 0, total = 0, left = 0;
  cudaMemGetInfo(&free, &total);
  simt::config().device_bytes = total - free + (1 << 20);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, (1 << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(cudaMalloc(&p, 1 << 19), cudaSuccess);
  cudaMemGetInfo(&left, &total);
  EXPECT_EQ(left, std::size_t{1} << 19);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  simt::config() = before;
}
TEST(RuntimeErrors, EventsWithoutTimingHaveNoElapsedTime) {
  const StreamOwner s;
  cudaEvent_t plain, timed, later;
  cudaEventCreateWithFlags(&plain, cudaEventDisableTiming);
  cudaEventCreate(&timed);
  cudaEventCreate(&later);
  for (const cudaEvent_t e : {plain, timed, later}) cudaEventRecord(e, s);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, later), cudaErrorNotReady);
  cudaStreamSynchronize(s);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, plain, later), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, later), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
}

TEST(RuntimeErrors, PointersKnowTheirKind) {
  const DeviceArray<float> device(32);
  const Pinned pinned(0);
  const std::vector<float> pageable(32);
  cudaPointerAttributes a;
  cudaPointerGetAttributes(&a, device.data() + 7);
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(a.device, 0);
  cudaPointerGetAttributes(&a, pinned.data);
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  cudaPointerGetAttributes(&a, pageable.data());
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
}
TEST(RuntimeErrors, DevicesAreOfTheAskedCapability) {
  const simt::Config before = simt::config();
  for (const int capability : {80, 90}) {
    simt::config().compute_capability = capability;
    cudaDeviceProp p;
    ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
    EXPECT_EQ(p.major * 10 + p.minor, capability);
    int shared = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), cudaSuccess);
    EXPECT_EQ(shared, capability == 80 ? 163 * 1024 : 227 * 1024);
  }
  simt::config() = before;
}
TEST(StreamFaults, KernelThatTouchesMemoryOfAnotherDevice) {
  const DeviceArray<float> a(32);
  simt::expect_fault(FaultKind::usage, "device 1 touches memory of device 0", [&] {
    cudaSetDevice(1);
    const StreamOwner s;
    cudaSetDevice(0);
    cuda::launch(add_one, dim3(1), dim3(32), 0, s, a.data(), a.data());
    cudaStreamSynchronize(s);
  });
}
TEST(StreamFaults, TheNullStreamIsRefused) {
  simt::expect_fault(FaultKind::usage, "null stream", [] {
    cudaEvent_t e;
    cudaEventCreate(&e);
    cudaEventRecord(e, nullptr);
  });
}

}  // namespace
}  // namespace ringattn
