#include "bench/gpu/kernel_cases.h"

#include <algorithm>

#include "src/error.h"

namespace ringattn::acceptance {
namespace {

struct Lengths {
  index_t q, k;  // primes: nothing divides
};
Lengths lengths_of(Extent extent) {
  if (extent == Extent::tiny) return {19, 43};
  return extent == Extent::small ? Lengths{67, 139} : Lengths{197, 331};
}

std::vector<Tile> full(const Lengths& l) { return {{{0, l.q}, {0, l.k}, {}}}; }
// Aligned at the end.
std::vector<Tile> window(const Lengths& l, index_t left, index_t right) {
  const index_t aligned = l.k - l.q;
  return {{{0, l.q}, {0, l.k}, {.lo = aligned - left, .hi = aligned + right}}};
}
std::vector<Tile> causal(const Lengths& l) { return window(l, kUnbounded / 2, 0); }

// Documents of uneven lengths, causal, the third one masked whole: its rows see nothing.
std::vector<Tile> documents(const Lengths& l) {
  std::vector<Tile> tiles;
  index_t q = 0, k = 0;
  for (index_t d = 0; q < l.q && k < l.k; ++d) {
    const index_t q_end = std::min(l.q, q + 3 + 17 * (d % 4)), k_end = std::min(l.k, k + 5 + 29 * (d % 3));
    if (d != 2) tiles.push_back({{q, q_end}, {k, k_end}, {.hi = k_end - q_end}});
    q = q_end;
    k = k_end;
  }
  return tiles;
}

// Every other rectangle of an uneven grid, as block-sparse masks have them, each with a band of its own.
std::vector<Tile> rectangles(const Lengths& l) {
  std::vector<Tile> tiles;
  for (index_t q = 0, n = 0; q < l.q; q += 37)
    for (index_t k = 0; k < l.k; k += 53, ++n) {
      const Band bands[] = {{}, {.lo = k - q - 11}, {.hi = k - q + 7}, {k - q - 20, k - q + 9}};
      if (n % 3 != 1) tiles.push_back({{q, std::min(q + 37, l.q)}, {k, std::min(k + 53, l.k)}, bands[n % 4]});
    }
  return tiles;
}

// Above the diagonal: the first rows see most, the last ones nothing, and rows meet whole tiles of -inf
// before the first key that they see.
std::vector<Tile> above(const Lengths& l) { return {{{0, l.q}, {0, l.k}, {.lo = l.k - l.q / 2}}}; }

struct Named {
  std::string name;
  std::vector<Tile> tiles;
};
std::vector<Named> masks(const Lengths& l) {
  return {{"full", full(l)},           {"causal", causal(l)},         {"window 20,3", window(l, 20, 3)},
          {"documents", documents(l)}, {"rectangles", rectangles(l)}, {"above", above(l)}};
}

// All keys, or three uneven blocks that carry the state.
std::vector<Range> blocks(index_t k_rows, bool carried) {
  if (!carried) return {{0, k_rows}};
  const index_t first = k_rows * 2 / 5, second = std::min(k_rows, first + 1);
  return {{0, first}, {first, second}, {second, k_rows}};
}

class Cases {
 public:
  explicit Cases(Extent extent) : extent_(extent), lengths_(lengths_of(extent)) {}

  void add(const HeadShape& shape, DType dtype, const Named& mask, const Lengths& l, bool carried,
           double deviation = 1) {
    const std::string heads = std::to_string(shape.num_heads) + "/" + std::to_string(shape.num_heads_kv);
    std::string name = std::string(name_of(dtype)) + " head_dim " + std::to_string(shape.head_dim) + "/" +
                       std::to_string(shape.head_dim_v) + " " + std::to_string(l.q) + "x" +
                       std::to_string(l.k) + " " + mask.name + " batch " + std::to_string(shape.batch) +
                       " heads " + heads + (carried ? ", carried" : "");
    if (deviation != 1) name += ", deviation " + std::to_string(static_cast<int>(deviation));
    cases_.push_back({.name = std::move(name),
                      .shape = shape,
                      .dtype = dtype,
                      .q_rows = l.q,
                      .k_rows = l.k,
                      .tiles = mask.tiles,
                      .blocks = blocks(l.k, carried),
                      .deviation = deviation});
  }

  void every_head_dim() {
    const Named mask{"causal", causal(lengths_)};
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
      for (const auto& [k, v] :
           {std::pair<index_t, index_t>{64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
        if (extent_ == Extent::tiny && k != 64 && (dtype != DType::bf16 || k != 192)) continue;
        add({1, 2, 1, k, v}, dtype, mask, lengths_, dtype == DType::f16);
      }
    if (extent_ == Extent::tiny) return;
    add({1, 1, 1, 40, 24}, DType::bf16, mask, lengths_, true);
    add({1, 1, 1, 300, 300}, DType::f16, mask, lengths_, true);  // beyond the tensor-core chapters
  }
  void every_mask() {
    for (const Named& mask : masks(lengths_)) {
      if (extent_ == Extent::tiny && mask.name != "documents" && mask.name != "above") continue;
      add({1, 2, 2, 64, 64}, DType::bf16, mask, lengths_, false);
      if (extent_ != Extent::tiny) add({1, 2, 1, 128, 128}, DType::bf16, mask, lengths_, true);
    }
  }
  void every_group() {
    const Named mask{"causal", causal(lengths_)};
    for (const auto& [q, kv] : {std::pair<index_t, index_t>{3, 3}, {4, 1}, {6, 2}})
      if (extent_ != Extent::tiny || q == 4) add({2, q, kv, 64, 64}, DType::bf16, mask, lengths_, true);
    const Lengths other{131, 257};
    if (extent_ == Extent::full)
      add({1, 16, 2, 128, 128}, DType::f16, {"causal", causal(other)}, other, false);
  }
  // A single query, single key, lengths at the edges of tiles, logits of +-300 and more.
  void edges() {
    for (const Lengths l : {Lengths{1, 67}, {5, 1}, {64, 64}, {65, 129}})
      if (extent_ == Extent::full || l.q < 6)
        add({1, 2, 1, 64, 64}, DType::bf16, {"full", full(l)}, l, false);
    for (const DType dtype : {DType::bf16, DType::f16})
      add({1, 1, 1, 64, 64}, dtype, {"causal", causal(lengths_)}, lengths_, true, 10);
    if (extent_ != Extent::full) return;
    const Lengths decode{3, 4099}, square{521, 521};
    add({1, 4, 1, 128, 128}, DType::bf16, {"causal", causal(decode)}, decode, true);
    add({1, 2, 1, 128, 128}, DType::bf16, {"causal", causal(square)}, square, true);
  }

  std::vector<KernelCase> take() && { return std::move(cases_); }

 private:
  Extent extent_;
  Lengths lengths_;
  std::vector<KernelCase> cases_{};
};

}  // namespace

Extent extent_from_name(const std::string& name) {
  if (name == "tiny") return Extent::tiny;
  if (name == "small") return Extent::small;
  if (name == "full") return Extent::full;
  throw UsageError("--extent is '" + name + "', allowed are tiny, small and full");
}

std::vector<KernelCase> kernel_cases(Extent extent) {
  Cases cases(extent);
  cases.every_head_dim();
  cases.every_mask();
  cases.every_group();
  cases.edges();
  return std::move(cases).take();
}

bool may_refuse(const std::string& chapter, const KernelCase& problem) {
  if (chapter == "plain" || chapter == "auto") return false;
  const auto fits = [](index_t dim) { return dim % 16 == 0 && dim <= 256; };
  return problem.dtype == DType::f32 || !fits(problem.shape.head_dim) || !fits(problem.shape.head_dim_v);
}

std::vector<std::string> chapters_of(int capability) {
  std::vector<std::string> chapters{"plain"};
  if (capability >= 80) chapters.emplace_back("sm_80");
  if (capability == 90) chapters.emplace_back("sm_90a");
  return chapters;
}

}  // namespace ringattn::acceptance
