// Rows of one head out of a tensor file, for the check: any rank can have any row.
#pragma once
#include <memory>

#include "launch/files/tensor_file.h"
#include "launch/head_rows.h"

namespace ringattn::launch {

// Reads pieces of all heads and keeps about `budget_bytes` of them, so that a file that fits is read once
// however many heads are asked for. The file must outlive the result.
ReadHead head_reader(const TensorFile& file, std::size_t budget_bytes);

}  // namespace ringattn::launch
