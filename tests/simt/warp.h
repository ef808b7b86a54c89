// Warp-collective operations: the lanes of a mask meet, one of them computes, all go on.
#pragma once
#include <bit>
#include <cstring>
#include <string>

#include "tests/simt/block.h"

namespace simt {

// Operands and results of all lanes, as the computing lane sees them.
template <class In, class Out>
struct Lanes {
  const Rendezvous& r;
  bool has(unsigned lane) const { return r.mask >> lane & 1; }
  const In& in(unsigned lane) const { return *static_cast<const In*>(r.in[lane]); }
  Out& out(unsigned lane) const { return *static_cast<Out*>(r.out[lane]); }
};

enum class Convergence {
  by_mask,  // shfl, vote, syncwarp: lanes may come from different source lines
  aligned,  // ldmatrix, mma: every lane must execute the very same instruction
};

inline Rendezvous& meeting_for(Thread& t, const char* op, std::uint32_t mask, Convergence c,
                               const Where& where) {
  Warp& warp = t.block->warps[t.warp];
  if (!(mask >> t.lane & 1)) raise(FaultKind::usage, std::string(op) + ": mask omits this lane", where);
  if (mask & ~warp.present)
    raise(FaultKind::usage, std::string(op) + ": mask names lanes that do not exist", where);
  Rendezvous* free = nullptr;
  for (Rendezvous& r : warp.meetings) {
    if (r.arrived == 0) {
      free = free ? free : &r;
    } else if (r.mask == mask && (r.op == op || std::strcmp(r.op, op) == 0)) {
      if (c == Convergence::aligned && r.line != where.line())
        raise(FaultKind::divergence, std::string(op) + ": other lanes are at line " + std::to_string(r.line),
              where);
      return r;
    }
  }
  if (!free) raise(FaultKind::divergence, std::string(op) + ": warp split over too many masks", where);
  free->op = op;
  free->line = where.line();
  free->mask = mask;
  return *free;
}

// compute(Lanes<In, Out>) runs once, on the lane that arrives last.
template <class Out, class In, class Compute>
Out warp_collective(const char* op, std::uint32_t mask, Convergence convergence, const In& in,
                    const Where& where, Compute&& compute) {
  Thread& t = self();
  Out out{};
  Rendezvous& r = meeting_for(t, op, mask, convergence, where);
  r.in[t.lane] = &in;
  r.out[t.lane] = &out;
  r.arrived |= 1u << t.lane;
  if (r.arrived != mask) {
    t.block->suspend(t, op, where);
    return out;
  }
  compute(Lanes<In, Out>{r});
  Warp& warp = t.block->warps[t.warp];
  warp.runnable |= mask;
  r.arrived = 0;
  return out;
}

template <class T>
T shuffle(const char* op, std::uint32_t mask, T value, int selector, int width, const Where& where,
          int (*source)(int lane, int selector, int width)) {
  struct In {
    T value;
    int selector, width;
  };
  return warp_collective<T>(
      op, mask, Convergence::by_mask, In{value, selector, width}, where, [&](Lanes<In, T> w) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (!w.has(lane)) continue;
          const In& mine = w.in(lane);
          const auto from = static_cast<unsigned>(source(static_cast<int>(lane), mine.selector, mine.width));
          if (!w.has(from))
            raise(FaultKind::usage,
                  std::string(op) + " reads lane " + std::to_string(from) + ", which is not in the mask",
                  where);
          w.out(lane) = w.in(from).value;
        }
      });
}

inline std::uint32_t ballot(std::uint32_t mask, bool predicate, const Where& where) {
  return warp_collective<std::uint32_t>("vote", mask, Convergence::by_mask, predicate, where,
                                        [](Lanes<bool, std::uint32_t> w) {
                                          std::uint32_t bits = 0;
                                          for (unsigned lane = 0; lane < 32; ++lane)
                                            if (w.has(lane) && w.in(lane)) bits |= 1u << lane;
                                          for (unsigned lane = 0; lane < 32; ++lane)
                                            if (w.has(lane)) w.out(lane) = bits;
                                        });
}

// elect.sync promises one lane, not which: any of them, so that a kernel that counts on lane 0 shows.
inline bool elect(std::uint32_t mask, const Where& where) {
  return warp_collective<bool>("elect.sync", mask, Convergence::aligned, 0, where, [](Lanes<int, bool> w) {
    Block& b = *self().block;
    unsigned lane = b.random.below(32);
    while (!w.has(lane)) lane = (lane + 1) % 32;
    w.out(lane) = true;
  });
}

inline void sync_warp(std::uint32_t mask, const Where& where) {
  warp_collective<int>("__syncwarp", mask, Convergence::by_mask, 0, where, [](Lanes<int, int>) {
    Thread& t = self();
    t.block->race.sync_warp(t.warp);
  });
}

}  // namespace simt
