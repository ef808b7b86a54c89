#include "src/mask.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "src/refuse.h"
#include "src/tile_overlap.h"

namespace ringattn {
namespace {

void check_lengths(index_t seqlen_q, index_t seqlen_k) {
  require_between("seqlen_q", seqlen_q, 0, kMaxSeqlen);
  require_between("seqlen_k", seqlen_k, 0, kMaxSeqlen);
}

std::string text_of(const Window& w) {
  return std::string("(").append(std::to_string(w.left)) + "," + std::to_string(w.right) + ")";
}

void check_window(const Window& w) {
  if (w.left < -1 || w.right < -1) {
    refuse("window", text_of(w), "left and right are -1 (no limit), 0 or more keys");
  }
}

std::string name_of(const Window& w) {
  if (w == Window{-1, -1}) return "full";
  if (w == Window{-1, 0}) return "causal";
  return "window" + text_of(w);
}

// What the queries q see of the keys k through a window that is aligned at the end of both. The shift between
// the ends is added to the window before anything is cut to the range of keys: 6 queries, 2 keys and right =
// 2^31 - 1 give {-inf, 2^31 - 5}, so all rows see both keys (case A18).
Tile windowed(Range q, Range k, const Window& w) {
  const index_t shift = k.end - q.end;
  return {.q = q,
          .k = k,
          .band = {w.left < 0 ? -kUnbounded : shift - std::min(w.left, kUnbounded),
                   w.right < 0 ? kUnbounded : shift + std::min(w.right, kUnbounded)}};
}

void check_offsets(const std::string& name, std::span<const index_t> offsets, index_t seqlen) {
  if (offsets.empty()) refuse(name, "empty", "it starts with 0");
  index_t before = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::string entry = name + "[" + std::to_string(i) + "]";
    if (i == 0 && offsets[0] != 0) refuse(entry, std::to_string(offsets[0]), "the first offset is 0");
    require_between(entry, offsets[i], before, seqlen);
    before = offsets[i];
  }
}

// The caller's tiles, normalised in place so that an index still names the same tile.
std::vector<Tile> checked(index_t seqlen_q, index_t seqlen_k, std::vector<Tile> tiles) {
  const auto inside = [](const Range& r, index_t length) {
    return 0 <= r.begin && r.begin <= r.end && r.end <= length;
  };
  std::vector<Tile> given = tiles;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    if (!inside(tiles[i].q, seqlen_q) || !inside(tiles[i].k, seqlen_k)) {
      refuse("tile " + std::to_string(i), to_text(tiles[i]),
             "allowed are queries in [0, " + std::to_string(seqlen_q) + ") and keys in [0, " +
                 std::to_string(seqlen_k) + "), each with begin <= end");
    }
    tiles[i] = normalized(tiles[i]);
  }
  if (const auto overlap = find_overlap(tiles)) {
    throw UsageError("tile " + std::to_string(overlap->first) + " " + to_text(given[overlap->first]) +
                     " and tile " + std::to_string(overlap->second) + " " + to_text(given[overlap->second]) +
                     " overlap: both hold query " + std::to_string(overlap->query) + " and key " +
                     std::to_string(overlap->key));
  }
  return tiles;
}

}  // namespace

Mask::Mask(index_t seqlen_q, index_t seqlen_k, std::vector<Tile> tiles, std::string name)
    : seqlen_q_(seqlen_q), seqlen_k_(seqlen_k), tiles_(std::move(tiles)), name_(std::move(name)) {
  for (Tile& t : tiles_) t = normalized(t);
  std::erase_if(tiles_, [](const Tile& t) { return t.q.empty(); });
  std::sort(tiles_.begin(), tiles_.end(), [](const Tile& a, const Tile& b) {
    const auto key = [](const Tile& t) {
      return std::tuple(t.q.begin, t.k.begin, t.q.end, t.k.end, t.band.lo, t.band.hi);
    };
    return key(a) < key(b);
  });
  // Sums of pairs, of this mask or of parts of it, fit in 64 bits from here on.
  index_t room = std::numeric_limits<index_t>::max();
  for (const Tile& t : tiles_) {
    const index_t pairs = ringattn::visible_pairs(t);
    if (pairs > room) throw UsageError("mask " + name_ + " has 2^63 visible pairs or more");
    room -= pairs;
  }
}

Mask Mask::full(index_t seqlen_q, index_t seqlen_k) { return window(seqlen_q, seqlen_k, {-1, -1}); }

Mask Mask::causal(index_t seqlen_q, index_t seqlen_k) { return window(seqlen_q, seqlen_k, {-1, 0}); }

Mask Mask::window(index_t seqlen_q, index_t seqlen_k, Window window) {
  check_lengths(seqlen_q, seqlen_k);
  check_window(window);
  return Mask(seqlen_q, seqlen_k, {windowed({0, seqlen_q}, {0, seqlen_k}, window)}, name_of(window));
}

Mask Mask::documents(index_t seqlen_q, index_t seqlen_k, std::span<const index_t> cu_seqlens_q,
                     std::span<const index_t> cu_seqlens_k, Window window) {
  check_lengths(seqlen_q, seqlen_k);
  check_window(window);
  check_offsets("cu_seqlens_q", cu_seqlens_q, seqlen_q);
  check_offsets("cu_seqlens_k", cu_seqlens_k, seqlen_k);
  if (cu_seqlens_q.size() != cu_seqlens_k.size()) {
    throw UsageError("cu_seqlens_q has " + std::to_string(cu_seqlens_q.size()) +
                     " offsets and cu_seqlens_k has " + std::to_string(cu_seqlens_k.size()) +
                     "; both have one more than there are documents");
  }
  std::vector<Tile> tiles;
  tiles.reserve(cu_seqlens_q.size() - 1);
  bool align = true;
  for (std::size_t d = 0; d + 1 < cu_seqlens_q.size(); ++d) {
    const Range q{cu_seqlens_q[d], cu_seqlens_q[d + 1]}, k{cu_seqlens_k[d], cu_seqlens_k[d + 1]};
    if (q.empty() || k.empty()) continue;
    tiles.push_back(windowed(q, k, window));
    align = align && k.end - q.end == seqlen_k - seqlen_q;
  }
  const std::string name = "documents(" + std::to_string(cu_seqlens_q.size() - 1) + ")+" + name_of(window);
  Mask mask(seqlen_q, seqlen_k, std::move(tiles), name);
  mask.positions_align_ = align;
  return mask;
}

Mask Mask::tiles(index_t seqlen_q, index_t seqlen_k, std::vector<Tile> tiles) {
  check_lengths(seqlen_q, seqlen_k);
  tiles = checked(seqlen_q, seqlen_k, std::move(tiles));
  const std::string name = "tiles(" + std::to_string(tiles.size()) + ")";
  return Mask(seqlen_q, seqlen_k, std::move(tiles), name);
}

index_t Mask::visible_pairs() const {
  index_t pairs = 0;
  for (const Tile& t : tiles_) pairs += ringattn::visible_pairs(t);
  return pairs;
}

}  // namespace ringattn
