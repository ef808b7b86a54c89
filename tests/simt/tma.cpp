#include "tests/simt/tma.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/simt/guard.h"
#include "tests/simt/mbarrier.h"
#include "tests/simt/memory.h"
#include "tests/simt/swizzle.h"

namespace simt {

void TmaEngine::load(Thread& t, std::uint32_t destination, const CUtensorMap& map, std::uint32_t barrier,
                     const Coordinates& place, const Where& where) {
  Block& b = *t.block;
  if (!registered_) {
    registered_ = true;
    b.engines.push_back([this, &b] { return step(b); });
    b.final_checks.push_back([this] {
      if (!pending_.empty())
        raise(FaultKind::race, "the block ended while a TMA load was filling its shared memory",
              pending_[0].where);
    });
  }
  if (map.rank != place.rank)
    raise(FaultKind::usage,
          "TMA load with " + std::to_string(place.rank) + " coordinates of a map of rank " +
              std::to_string(map.rank),
          where);
  if (map.swizzle_128b && map.box[0] * map.element_bytes != 128)
    raise(FaultKind::usage, "TMA load of swizzled rows of other than 128 bytes is not modelled", where);
  std::uint32_t bytes = map.element_bytes;
  for (unsigned i = 0; i < map.rank; ++i) bytes *= map.box[i];
  // The manual asks for 128; a swizzled tile that is not aligned to 1024 is read back wrongly by descriptors
  // (swizzle.h).
  unsigned char* p = b.shared.checked(destination, bytes, map.swizzle_128b ? 1024 : 128, where);
  b.extension<MBarriers>().check_for_tma(t, barrier, where);
  for (const Pending& other : pending_)
    if (other.destination < destination + bytes && destination < other.destination + other.bytes)
      raise(FaultKind::race,
            "TMA load into a tile that another load (" + at(other.where) + ") is still filling", where);

  Pending load{destination, barrier, bytes, map, place.at, {}, where};
  if (config().race_check)
    b.race.async_write(t.warp, b.shared.offset(destination), bytes, load.published, where);
  std::memset(p, kPoison, bytes);
  pending_.push_back(load);
}

bool TmaEngine::step(Block& b) {
  if (pending_.empty()) return false;
  const auto i = b.random.below(static_cast<std::uint32_t>(pending_.size()));
  const Pending p = pending_[i];
  pending_.erase(pending_.begin() + i);
  land(b, p);
  return true;
}

// A row of the box at a time: what of it lies inside the tensor is one run of memory.
void TmaEngine::land(Block& b, const Pending& p) {
  const CUtensorMap& m = p.map;
  const std::uint32_t row_bytes = m.box[0] * m.element_bytes;
  const std::int64_t x = p.at[0], width = static_cast<std::int64_t>(m.dim[0]);
  const std::int64_t first = std::clamp<std::int64_t>(-x, 0, m.box[0]);
  const std::int64_t last = std::clamp<std::int64_t>(width - x, first, m.box[0]);
  std::vector<unsigned char> row(row_bytes);
  std::array<std::uint32_t, 4> i{};  // place in the box
  for (std::uint32_t to = p.destination; to < p.destination + p.bytes; to += row_bytes) {
    std::fill(row.begin(), row.end(), static_cast<unsigned char>(0));  // outside the tensor
    bool inside = first < last;
    const unsigned char* from = m.base;
    for (unsigned d = 1; d < m.rank; ++d) {
      const std::int64_t c = std::int64_t{p.at[d]} + i[d];
      inside = inside && c >= 0 && c < static_cast<std::int64_t>(m.dim[d]);
      if (inside) from += static_cast<std::uint64_t>(c) * m.stride[d];
    }
    if (inside) {
      from += (x + first) * m.element_bytes;
      const auto bytes = static_cast<std::size_t>(last - first) * m.element_bytes;
      check_global(from, bytes, m.element_bytes, Access::read, p.where);
      std::memcpy(&row[static_cast<std::size_t>(first) * m.element_bytes], from, bytes);
    }
    for (std::uint32_t chunk = 0; chunk < row_bytes; chunk += 16) {
      const std::uint32_t place = m.swizzle_128b ? swizzle_128b(to + chunk) : to + chunk;
      std::memcpy(b.shared.checked(place, 16, 16, p.where), &row[chunk], 16);
    }
    for (unsigned d = 1; d < m.rank && ++i[d] == m.box[d]; ++d) i[d] = 0;
  }
  b.extension<MBarriers>().complete_tx(p.barrier, p.bytes, p.published);
}

}  // namespace simt

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (!map || rank < 3 || rank > 4) return CUDA_ERROR_INVALID_VALUE;  // the harness loads 3-D and 4-D boxes
  CUtensorMap m{};
  m.base = static_cast<const unsigned char*>(base);
  m.rank = rank;
  m.element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  m.swizzle_128b = swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  m.stride[0] = m.element_bytes;
  bool good = reinterpret_cast<std::uintptr_t>(base) % 16 == 0;
  for (unsigned i = 0; i < rank; ++i) {
    m.dim[i] = dims[i];
    m.box[i] = box[i];
    good = good && dims[i] > 0 && dims[i] <= 1ull << 32 && box[i] > 0 && box[i] <= 256 &&
           element_strides[i] == 1;
    if (i == 0) continue;
    m.stride[i] = strides[i - 1];
    good = good && m.stride[i] % 16 == 0 && m.stride[i] < 1ull << 40;
  }
  const std::uint32_t row = m.box[0] * m.element_bytes;
  good = good && row % 16 == 0 && (!m.swizzle_128b || row <= 128);
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  *map = m;
  return CUDA_SUCCESS;
}
