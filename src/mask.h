// Which keys each query sees, as disjoint tiles in global positions. The only place where causal, window and
// document rules exist: sharding, RoPE alignment, FLOPs, balance and kernels all read the tiles.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/types.h"

namespace ringattn {

// Keys besides the query itself that it sees on each side, inclusive; -1 = no limit. Causal is {-1, 0}. A
// query is aligned with the keys at the end (bottom-right): query i stands beside key i + seqlen_k -
// seqlen_q.
struct Window {
  index_t left = -1, right = -1;
  friend bool operator==(const Window&, const Window&) = default;
};

class Mask {
 public:
  // Lengths are 0 to 2^58, visible pairs below 2^63. Every constructor throws UsageError naming the argument
  // and its value.
  static Mask full(index_t seqlen_q, index_t seqlen_k);
  static Mask causal(index_t seqlen_q, index_t seqlen_k);
  static Mask window(index_t seqlen_q, index_t seqlen_k, Window window);
  // Packed documents: document d is queries [cu_q[d], cu_q[d+1]) and keys [cu_k[d], cu_k[d+1]), and sees only
  // itself, through `window` aligned at its own end. Offsets start at 0 and do not fall; documents may be
  // empty; rows past the last offset see nothing.
  static Mask documents(index_t seqlen_q, index_t seqlen_k, std::span<const index_t> cu_seqlens_q,
                        std::span<const index_t> cu_seqlens_k, Window window);
  // The caller's tiles: inside [0, seqlen_q) x [0, seqlen_k) and disjoint; otherwise the error names the
  // tiles.
  static Mask tiles(index_t seqlen_q, index_t seqlen_k, std::vector<Tile> tiles);

  std::span<const Tile> tiles() const {
    return tiles_;
  }  // normalised, none empty, sorted by (q.begin, k.begin)
  index_t seqlen_q() const { return seqlen_q_; }
  index_t seqlen_k() const { return seqlen_k_; }
  index_t visible_pairs() const;  // exact
  // False for documents whose queries and keys are packed at different offsets: then no single shift lines
  // queries up with keys, and RoPE needs the caller's own positions.
  bool positions_align() const { return positions_align_; }
  const std::string& name() const { return name_; }  // "causal", "window(4,0)", "documents(3)+causal", ...

 private:
  Mask(index_t seqlen_q, index_t seqlen_k, std::vector<Tile> tiles, std::string name);
  index_t seqlen_q_, seqlen_k_;
  std::vector<Tile> tiles_;
  std::string name_;
  bool positions_align_ = true;
};

}  // namespace ringattn
