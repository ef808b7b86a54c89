// Which bytes of a dense tensor belong to a shard: the rows of its segments, as contiguous runs.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "src/layout.h"
#include "src/types.h"

namespace ringattn {

struct ByteRun {
  std::uint64_t tensor = 0;  // byte offset in the whole tensor
  std::uint64_t shard =
      0;  // byte offset in the shard's dense copy, where the segments' rows replace the axis
  std::uint64_t bytes = 0;
  friend bool operator==(const ByteRun&, const ByteRun&) = default;
};

// Bytes of the shard's dense copy. The shape's own size must fit 63 bits (checked_bytes). Throws UsageError
// beginning with `what` if the shape has no such axis, a segment leaves it or has a stride below 1, or the
// segments hold more rows than the axis, which only rows held twice can do.
std::uint64_t shard_bytes(const std::string& what, std::span<const index_t> shape, std::size_t axis,
                          std::size_t element_bytes, std::span<const Segment> segments);

// Calls visit for every non-empty run, in the order of the shard's bytes. A segment of stride 1 is one run
// for each index of the axes before `axis`; with a larger stride each row is a run of its own, because the
// bytes between them are other shards'. Example: shape [2, 5, 3] of 4 bytes, axis 1, segment {0, 2, 3} (rows
// 0 and 3): runs at tensor bytes 0, 36, 60, 96 of 12 bytes each. The arguments have passed shard_bytes.
void for_each_run(std::span<const index_t> shape, std::size_t axis, std::size_t element_bytes,
                  std::span<const Segment> segments, const std::function<void(const ByteRun&)>& visit);

}  // namespace ringattn
