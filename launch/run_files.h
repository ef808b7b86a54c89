// The files of ringattn run: what their shapes say, and whether the options agree.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launch/files/tensor_file.h"
#include "launch/options.h"
#include "launch/problem_options.h"

namespace ringattn::launch {

struct InputFiles {
  TensorFile q, k, v;
  std::optional<TensorFile> dout{};  // for gradients
};

// Throws DataError naming the file.
InputFiles open_inputs(const Files& files, std::optional<DType> dtype);

// Throws DataError naming both files where they contradict each other, UsageError naming option and file
// where an option contradicts them.
Shapes shapes_of(const ProblemOptions& options, const InputFiles& files);

// out and what else was asked for. All get their names together, when all are complete.
struct OutputFiles {
  PendingFile out;
  std::optional<PendingFile> lse{}, dq{}, dk{}, dv{};
};
std::vector<PendingFile*> all_of(OutputFiles& files);  // those that are there

// Temporary names of the files that rank 0 has created, one a line, as they travel to the other ranks.
std::string temporary_names(OutputFiles& files);
OutputFiles create_outputs(const Files& files, const Shapes& shapes);
OutputFiles attach_outputs(const Files& files, const Shapes& shapes, const std::string& temporary_names);

}  // namespace ringattn::launch
