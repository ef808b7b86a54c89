// The oracle of the planning tests: which query sees which key, from the formulas of the conventions, one
// pair at a time and without tiles, segments or plans.
#pragma once
#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/layout.h"
#include "src/mask.h"

namespace ringattn::test {

using Visible = std::function<bool(index_t query, index_t key)>;

// j in [i + off - left, i + off + right] with off = seqlen_k - seqlen_q, -1 = no limit.
inline bool in_window(index_t query, index_t key, index_t seqlen_q, index_t seqlen_k, const Window& w) {
  const index_t beside = query + seqlen_k - seqlen_q;
  return (w.left < 0 || key >= beside - w.left) && (w.right < 0 || key <= beside + w.right);
}

inline Visible window_formula(index_t seqlen_q, index_t seqlen_k, Window w) {
  return [=](index_t i, index_t j) { return in_window(i, j, seqlen_q, seqlen_k, w); };
}

// The window of each document counts from its own start, with its own two lengths.
inline Visible document_formula(std::vector<index_t> cu_q, std::vector<index_t> cu_k, Window w) {
  return [=](index_t i, index_t j) {
    for (std::size_t d = 0; d + 1 < cu_q.size(); ++d) {
      const bool here = cu_q[d] <= i && i < cu_q[d + 1] && cu_k[d] <= j && j < cu_k[d + 1];
      if (here && in_window(i - cu_q[d], j - cu_k[d], cu_q[d + 1] - cu_q[d], cu_k[d + 1] - cu_k[d], w)) {
        return true;
      }
    }
    return false;
  };
}

inline Visible tile_formula(std::vector<Tile> tiles) {
  return [=](index_t i, index_t j) {
    for (const Tile& t : tiles) {
      if (t.q.begin <= i && i < t.q.end && t.k.begin <= j && j < t.k.end && t.band.lo <= j - i &&
          j - i <= t.band.hi) {
        return true;
      }
    }
    return false;
  };
}

inline std::vector<Window> windows() { return {{-1, -1}, {-1, 0}, {3, 0}, {0, 0}, {2, 2}, {-1, 1}, {4, -1}}; }

// Cuts a sequence at random into segments of stride 1 to 4, given to random ranks: some ranks get none.
inline Layout random_layout(index_t seqlen, int ranks, std::mt19937& random) {
  const auto below = [&](index_t n) {
    return static_cast<index_t>(random() % static_cast<std::uint32_t>(n));
  };
  std::vector<std::vector<Segment>> segments(static_cast<std::size_t>(ranks));
  std::vector<bool> held(static_cast<std::size_t>(seqlen));
  for (index_t begin = 0; begin < seqlen; ++begin) {
    if (held[static_cast<std::size_t>(begin)]) continue;
    Segment s{.begin = begin, .count = 0, .stride = 1 + below(4)};
    const index_t most = 1 + below(7);
    while (s.count < most && s.position(s.count) < seqlen &&
           !held[static_cast<std::size_t>(s.position(s.count))]) {
      held[static_cast<std::size_t>(s.position(s.count++))] = true;
    }
    segments[static_cast<std::size_t>(below(ranks))].push_back(s);
  }
  for (auto& shard : segments) std::shuffle(shard.begin(), shard.end(), random);
  return Layout::custom(seqlen, std::move(segments));
}

// Rectangles of a random grid, each empty, whole, or cut by a diagonal into two bands that do not meet.
inline std::vector<Tile> random_tiles(index_t seqlen_q, index_t seqlen_k, std::mt19937& random) {
  const auto below = [&](index_t n) {
    return static_cast<index_t>(random() % static_cast<std::uint32_t>(n));
  };
  std::vector<Tile> tiles;
  const index_t q_step = 1 + below(7), k_step = 1 + below(7);
  for (index_t q = 0; q < seqlen_q; q += q_step) {
    for (index_t k = 0; k < seqlen_k; k += k_step) {
      const Range rows{q, std::min(q + q_step, seqlen_q)}, keys{k, std::min(k + k_step, seqlen_k)};
      const index_t diagonal = k - q + below(9) - 4, width = below(3);
      switch (below(4)) {
        case 0:
          tiles.push_back({rows, keys, {}});
          break;
        case 1:
          tiles.push_back({rows, keys, {diagonal - width, diagonal}});
          break;
        case 2:
          tiles.push_back({rows, keys, {-kUnbounded, diagonal - 1}});
          tiles.push_back({rows, keys, {diagonal, diagonal + width}});
          break;
        default:
          break;
      }
    }
  }
  return tiles;
}

}  // namespace ringattn::test
