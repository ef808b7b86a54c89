// The part of src/problem.h that says in text what ranks must agree on.
#include <cstdio>

#include "src/problem.h"

namespace ringattn {
namespace {

// 64-bit FNV-1a over the bytes of integers, lowest byte first
// (http://www.isthe.com/chongo/tech/comp/fnv). It tells slips apart, not attacks.
class Hash {
 public:
  void add(index_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) {
      state_ = (state_ ^ (bits >> shift & 0xff)) * 0x100000001b3;
    }
  }
  std::string text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(state_));
    return digits;
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

// 17 significant digits tell any two doubles apart.
std::string text_of(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  return digits;
}

std::string text_of(const Mask& mask) {
  Hash hash;
  for (const Tile& t : mask.tiles()) {
    for (const index_t value : {t.q.begin, t.q.end, t.k.begin, t.k.end, t.band.lo, t.band.hi}) {
      hash.add(value);
    }
  }
  return std::to_string(mask.tiles().size()) + " tiles, hash " + hash.text();
}

// A named layout follows from its name, the length and the ranks; a custom one does not.
std::string text_of(const Layout& layout) {
  std::string name(name_of(layout.kind()));
  if (layout.kind() != LayoutKind::custom) return name;
  Hash hash;
  std::size_t segments = 0;
  for (int r = 0; r < layout.ranks(); ++r) {
    hash.add(static_cast<index_t>(layout.segments(r).size()));
    segments += layout.segments(r).size();
    for (const Segment& s : layout.segments(r)) {
      for (const index_t value : {s.begin, s.count, s.stride}) hash.add(value);
    }
  }
  return name + ", " + std::to_string(segments) + " segments, hash " + hash.text();
}

}  // namespace

std::vector<Field> fingerprint(const Problem& problem, const Sharding& sharding) {
  const HeadShape heads = problem.heads();
  const Rope& rope = problem.rope;
  const auto number = [](index_t value) { return std::to_string(value); };
  return {
      {"ranks", number(sharding.ranks())},
      {"batch", number(heads.batch)},
      {"seqlen_q", number(problem.seqlen_q())},
      {"seqlen_k", number(problem.seqlen_k())},
      {"num_heads", number(heads.num_heads)},
      {"num_heads_kv", number(heads.num_heads_kv)},
      {"head_dim", number(heads.head_dim)},
      {"head_dim_v", number(heads.head_dim_v)},
      {"dtype", std::string(name_of(problem.dtype))},
      {"softmax_scale", text_of(problem.scale())},
      {"mask", problem.mask.name()},
      {"mask_tiles", text_of(problem.mask)},
      {"rope", std::string(name_of(rope.pairing))},
      {"rope_base", text_of(rope.base)},
      {"rope_dim", number(rotary_dim(rope, heads.head_dim))},
      {"rope_position_offset", number(rope.position_offset)},
      {"layout_q", text_of(sharding.q)},
      {"layout_k", text_of(sharding.k)},
  };
}

std::string digest(const Problem& problem, const Sharding& sharding) {
  Hash hash;
  for (const Field& field : fingerprint(problem, sharding)) {
    // A NUL between words, so that no two lists of fields run into the same bytes.
    for (const char c : field.name + '\0' + field.value + '\0') hash.add(c);
  }
  return problem.mask.name() + " " + std::to_string(problem.seqlen_q()) + " x " +
         std::to_string(problem.seqlen_k()) + ", hash " + hash.text();
}

}  // namespace ringattn
