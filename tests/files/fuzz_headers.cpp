// libFuzzer target for both header parsers: any bytes are refused with DataError or describe a tensor that
// lies inside the file. The first byte chooses the parser.
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DRINGATTN_FUZZ=ON && cmake --build build-fuzz --target
//   files_fuzz_headers && build-fuzz/tests/files/files_fuzz_headers -max_total_time=60
#include "tests/files/header_invariants.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ringattn::test;
  if (size == 0) return 0;
  const auto file = std::as_bytes(std::span(data + 1, size - 1));
  const Verdict verdict = data[0] % 2 == 0 ? judge_npy(file) : judge_safetensors(file);
  if (verdict == Verdict::broken) std::abort();
  return 0;
}
