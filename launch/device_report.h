// What a report says of ranks that compute on GPUs.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "launch/gpus.h"
#include "launch/report.h"
#include "launch/ring_report.h"

namespace ringattn::launch {

// This rank's part of what its GPU could do by its data sheet; ranks that share one have equal parts.
Ceilings ceilings_of(const GpuSeat& gpu, DType dtype, int rank);

// "NVIDIA H200, compute capability 9.0, 132 multiprocessors at up to 1.98 GHz, 139.8 GiB"
std::string device_text(const CudaDevice& device);
nlohmann::ordered_json device_json(const CudaDevice& device);

// The table's line: the device, and how the ranks are spread over such.
std::string device_line(const Report& report);
// Null without GPUs.
nlohmann::ordered_json devices_json(const Report& report);

}  // namespace ringattn::launch
