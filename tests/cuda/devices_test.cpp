// The list of GPUs and what a program does on one besides attention, on the harness' devices.
#include "kernels/cuda/devices.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/device_stream.h"
#include "src/error.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

// The harness' knobs as they were, at the end of a test.
class CudaDevices : public ::testing::Test {
 protected:
  ~CudaDevices() override { simt::config() = before_; }

 private:
  simt::Config before_ = simt::config();
};

TEST_F(CudaDevices, AreListedWithWhatTellsThemApart) {
  simt::config().devices = 3;
  const CudaMachine machine = find_cuda_devices();
  EXPECT_EQ(machine.unavailable, "");
  EXPECT_EQ(machine.runtime_version, 13000);
  ASSERT_EQ(machine.devices.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const CudaDevice& device = machine.devices[static_cast<std::size_t>(i)];
    EXPECT_EQ(device.index, i);
    EXPECT_EQ(device.unusable, "");
    EXPECT_EQ(device.capability(), "9.0");
    EXPECT_EQ(device.memory_bytes, std::uint64_t{4} << 30);
  }
  EXPECT_EQ(machine.devices[0].uuid, "GPU-f0000000000000000000000000000000");
  EXPECT_EQ(machine.devices[2].uuid, "GPU-f0000000000000000000000000000002");
  EXPECT_EQ(machine.devices[2].pci, "0000:02:00.0");
}

TEST_F(CudaDevices, WithoutADriverAreNoneAndTheRuntimeSaysWhy) {
  simt::config().driver = false;
  const CudaMachine machine = find_cuda_devices();
  EXPECT_TRUE(machine.devices.empty());
  EXPECT_EQ(machine.driver_version, 0);
  EXPECT_EQ(machine.unavailable,
            "no CUDA driver: CUDA driver version is insufficient for CUDA runtime version");
  EXPECT_THROW(DeviceStream(0), DeviceError);
}

TEST_F(CudaDevices, HiddenFromTheProcessAreTheRuntimesWordsToo) {
  simt::config().devices = 0;
  EXPECT_EQ(find_cuda_devices().unavailable, "no CUDA-capable device is detected");
}

TEST_F(CudaDevices, TooOldForTheKernelsAreListedAndNotUsed) {
  simt::config().devices = 2;
  simt::config().compute_capability = 75;
  const CudaMachine machine = find_cuda_devices();
  ASSERT_EQ(machine.devices.size(), 2u);
  EXPECT_EQ(machine.devices[1].unusable, "compute capability 7.5, 8.0 or later is needed");
  EXPECT_NE(machine.unavailable.find("device 0 (simt sm_80): compute capability 7.5"), std::string::npos)
      << machine.unavailable;
  EXPECT_NE(machine.unavailable.find("device 1 "), std::string::npos) << machine.unavailable;
}

TEST_F(CudaDevices, CarryBytesThereAndBack) {
  DeviceStream stream(1);
  std::vector<std::byte> there(4099), back(4099);
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = static_cast<std::byte>(i % 251);
  const Buffer memory = stream.allocate(there.size());
  stream.upload(there, memory.bytes());
  stream.download(memory.bytes(), back);
  EXPECT_EQ(there, back);
  const Buffer nothing = stream.allocate(0);
  EXPECT_EQ(nothing.data, nullptr);
  stream.upload({}, nothing.bytes());
  stream.download(nothing.bytes(), {});
}

TEST_F(CudaDevices, RefuseMoreThanTheyHoldByItsSize) {
  simt::config().device_bytes = 1 << 20;
  DeviceStream stream(0);
  const std::uint64_t free = free_device_bytes();
  EXPECT_LE(free, std::uint64_t{1} << 20);
  try {
    stream.allocate(1 << 21);
    FAIL() << "allocated";
  } catch (const OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("2097152"), std::string::npos) << e.what();
  }
}

TEST_F(CudaDevices, ClockWhatAStreamDoes) {
  DeviceStream stream(0);
  std::vector<std::byte> bytes(1000);
  const Buffer memory = stream.allocate(bytes.size());
  StreamMark before, after;
  before.set(stream);
  stream.upload(bytes, memory.bytes());
  after.set(stream);
  stream.wait();
  EXPECT_GT(after.seconds_since(before), 0);
}

TEST_F(CudaDevices, ThatAreNotThereAreRefusedByNumber) {
  simt::config().devices = 2;
  try {
    DeviceStream stream(2);
    FAIL() << "made";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("device 2: invalid device ordinal"), std::string::npos) << e.what();
  }
}

// Figures of the data sheets, in TFLOP/s and TB/s: A100 SXM, H100 SXM (at the clock of its data sheet),
// H200's memory.
TEST(DevicePeak, IsThatOfTheDataSheet) {
  const CudaDevice a100{.major = 8, .minor = 0, .multiprocessors = 108, .clock_hz = 1.41e9};
  EXPECT_NEAR(device_peak(a100, DType::bf16).flops, 312e12, 1e12);
  EXPECT_NEAR(device_peak(a100, DType::f32).flops, 19.5e12, 0.1e12);
  EXPECT_EQ(device_peak(a100, DType::bf16).unit, "tensor core bf16");
  EXPECT_EQ(device_peak(a100, DType::f32).unit, "FMA");
  const CudaDevice h100{.major = 9, .minor = 0, .multiprocessors = 132, .clock_hz = 1.83e9};
  EXPECT_NEAR(device_peak(h100, DType::f16).flops, 989e12, 1e12);
  const CudaDevice h200{.memory_clock_hz = 3.201e9, .memory_bus_bits = 6144};
  EXPECT_NEAR(device_bandwidth(h200), 4.9e12, 0.05e12);
}

// Where a compute capability has cards of two rates, the figures of NVIDIA's papers for one of each, at the
// clock that these reckon with, in TFLOP/s.
TEST(DevicePeak, FollowsTheCardAndNotTheFastestOfItsKind) {
  struct Card {
    const char* name;
    int major, minor, multiprocessors;
    double clock_hz, tensor, fma;
  };
  for (const Card& card :
       {Card{"NVIDIA A40", 8, 6, 84, 1.740e9, 149.7, 37.4}, Card{"NVIDIA A10", 8, 6, 72, 1.695e9, 125, 31.2},
        Card{"NVIDIA GeForce RTX 3090", 8, 6, 82, 1.695e9, 71, 35.6},
        Card{"GeForce RTX 3090", 8, 6, 82, 1.695e9, 71, 35.6},  // older drivers
        Card{"NVIDIA RTX 6000 Ada Generation", 8, 9, 142, 2.505e9, 364.2, 91.1},
        Card{"NVIDIA GeForce RTX 4090", 8, 9, 128, 2.520e9, 165.2, 82.6},
        Card{"NVIDIA RTX PRO 6000 Blackwell", 12, 0, 188, 2.617e9, 503.8, 126},
        Card{"NVIDIA GeForce RTX 5090", 12, 0, 170, 2.407e9, 209.5, 104.8}}) {
    const CudaDevice device{.name = card.name,
                            .major = card.major,
                            .minor = card.minor,
                            .multiprocessors = card.multiprocessors,
                            .clock_hz = card.clock_hz};
    EXPECT_NEAR(device_peak(device, DType::bf16).flops, card.tensor * 1e12, 0.005 * card.tensor * 1e12)
        << card.name;
    EXPECT_EQ(device_peak(device, DType::f16).flops, device_peak(device, DType::bf16).flops) << card.name;
    EXPECT_NEAR(device_peak(device, DType::f32).flops, card.fma * 1e12, 0.005 * card.fma * 1e12) << card.name;
  }
}

TEST(DevicePeak, OfAnUnknownArchitectureIsNone) {
  const CudaDevice future{.major = 13, .minor = 7, .multiprocessors = 100, .clock_hz = 2e9};
  EXPECT_EQ(device_peak(future, DType::bf16).flops, 0);
}

}  // namespace
}  // namespace ringattn::test
