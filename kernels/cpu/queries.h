// The caller's queries, which are read where they lie each time a task begins with a group of them: to turn
// and transpose 48 rows takes less time than to fetch them transposed from another cache, and no memory.
#pragma once
#include <span>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/stage.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

class Queries {
 public:
  explicit Queries(const Target& target) : target_(target) {}

  // `q` must stay what it is for as long as groups are loaded. `factor`: see Scaling. Calls rotation.angles
  // once for each row and keeps what it says in `angles`, [rows][head_dim].
  void take(const ConstTensorView& q, const Rotation& rotation, double factor, std::span<float> angles,
            int threads);

  // Turned queries times `factor`: [head_dim][48], or, if the result is true, pairs of bf16 (see packed.h).
  // Those are chosen where the target has products of them that are as good as those of widened numbers.
  bool load_group(index_t batch, index_t head, index_t group, float* to) const;
  // One row in fp32.
  void load_row(index_t batch, index_t head, index_t row, float* to) const;
  // What load_group will read.
  MemoryRows rows_of(index_t batch, index_t head, index_t group) const;

 private:
  const Target& target_;
  ConstTensorView q_{};
  Rotation rotation_;
  double factor_ = 1;
};

}  // namespace ringattn::cpu
