// Arguments that no kernel can use, refused by name before anything is touched. All throw UsageError.
#pragma once
#include <array>
#include <cstddef>
#include <span>

#include "kernels/kernel.h"

namespace ringattn {

inline constexpr int kLargestDim = 512;  // of head_dim and head_dim_v, in every kernel

void check_not_negative(const char* name, index_t value);
void check_threads(int threads);
void check_shape(const HeadShape& shape);
void check_config(const KernelConfig& config);
// Shape, dtype, last stride and, if there are rows, the pointer.
void check_tensor(const char* name, const ConstTensorView& tensor, DType dtype,
                  const std::array<index_t, 4>& shape);
// An output may be null: it is not wanted.
void check_lse(const LseView& lse, const std::array<index_t, 3>& shape);
// An input may not, if there are rows.
void check_lse(const ConstLseView& lse, const std::array<index_t, 3>& shape);
void check_rotation(const Rotation& rotation, index_t head_dim);
void check_block(std::span<const std::byte> block, std::size_t bytes, std::size_t alignment);
void check_gradients(std::span<const std::byte> gradients, std::size_t bytes, std::size_t alignment);
// What is called before reserve() has made room for it.
void check_reserved(bool reserved, const char* call);
// A tile that shows nothing may lie anywhere.
void check_tile(const Tile& tile, index_t q_rows, index_t k_rows);

}  // namespace ringattn
