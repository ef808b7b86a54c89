#include "tests/simt/mma.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "tests/simt/stats.h"
#include "tests/simt/warp.h"

namespace simt {
namespace {

using Matrix = std::uint16_t[8][8];

// One phase of ldmatrix or stmatrix touches eight rows of 16 bytes, in one cycle if they fall into eight
// different groups of four banks.
class Phase {
 public:
  void touch(std::uint32_t address) { cycles_ = std::max(cycles_, ++in_group_[address / 16 % 8]); }
  ~Phase() {
    ++stats().ldmatrix_phases;
    stats().bank_conflicts += cycles_ - 1;
  }

 private:
  unsigned in_group_[8] = {}, cycles_ = 0;
};

void load_matrix(Matrix& m, const std::array<std::uint32_t, 8>& rows, const Where& where) {
  Thread& t = self();
  Phase phase;
  for (unsigned row = 0; row < 8; ++row) {
    const std::uint32_t a = rows[row];
    const unsigned char* p = t.block->shared.checked(a, 16, 16, where);
    phase.touch(a);
    if (config().race_check) t.block->race.read({t.warp, Lane::kAll}, t.block->shared.offset(a), 16, where);
    std::memcpy(m[row], p, 16);
    if (config().trap_poison)
      for (std::uint16_t bits : m[row])
        if (bits == 0xFFFF)
          raise(FaultKind::poison,
                "ldmatrix reads unwritten or in-flight shared offset " +
                    std::to_string(t.block->shared.offset(a)),
                where);
  }
}

template <unsigned kCount>
void load(std::uint32_t (&r)[kCount], std::uint32_t address, bool trans, const Where& where) {
  using Out = std::array<std::uint32_t, kCount>;
  const char* const op = trans ? "ldmatrix.trans" : "ldmatrix";
  const Out out =
      warp_collective<Out>(op, ~0u, Convergence::aligned, address, where, [&](Lanes<std::uint32_t, Out> w) {
        for (unsigned i = 0; i < kCount; ++i) {
          std::array<std::uint32_t, 8> rows;
          for (unsigned row = 0; row < 8; ++row) rows[row] = w.in(i * 8 + row);
          Matrix m;
          load_matrix(m, rows, where);
          for (unsigned lane = 0; lane < 32; ++lane) {
            const unsigned x = lane / 4, y = lane % 4 * 2;
            const std::uint32_t low = trans ? m[y][x] : m[x][y];
            const std::uint32_t high = trans ? m[y + 1][x] : m[x][y + 1];
            w.out(lane)[i] = low | high << 16;
          }
        }
      });
  std::copy(out.begin(), out.end(), r);
}

}  // namespace

void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address, bool trans, const Where& where) {
  load<4>(r, address, trans, where);
}
void ldmatrix(std::uint32_t (&r)[2], std::uint32_t address, bool trans, const Where& where) {
  load<2>(r, address, trans, where);
}

void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4], bool trans, const Where& where) {
  struct In {
    std::uint32_t address;
    std::array<std::uint32_t, 4> r;
  };
  const char* const op = trans ? "stmatrix.trans" : "stmatrix";
  warp_collective<int>(
      op, ~0u, Convergence::aligned, In{address, {r[0], r[1], r[2], r[3]}}, where, [&](Lanes<In, int> w) {
        Thread& t = self();
        for (unsigned i = 0; i < 4; ++i) {
          Matrix m;
          for (unsigned lane = 0; lane < 32; ++lane) {
            const unsigned x = lane / 4, y = lane % 4 * 2;
            const std::uint32_t pair = w.in(lane).r[i];
            (trans ? m[y][x] : m[x][y]) = static_cast<std::uint16_t>(pair);
            (trans ? m[y + 1][x] : m[x][y + 1]) = static_cast<std::uint16_t>(pair >> 16);
          }
          Phase phase;
          for (unsigned row = 0; row < 8; ++row) {
            const std::uint32_t a = w.in(i * 8 + row).address;
            unsigned char* p = t.block->shared.checked(a, 16, 16, where);
            phase.touch(a);
            if (config().race_check)
              t.block->race.write({t.warp, Lane::kAll}, t.block->shared.offset(a), 16, where);
            std::memcpy(p, m[row], 16);
          }
        }
      });
}

void mma_m16n8k16(Element e, float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  const Where& where) {
  struct In {
    std::uint32_t a[4], b[2];
    float d[4];
  };
  using Out = std::array<float, 4>;
  const In mine{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  const char* const op = e == Element::bf16 ? "mma.m16n8k16.bf16" : "mma.m16n8k16.f16";
  const Out out = warp_collective<Out>(op, ~0u, Convergence::aligned, mine, where, [&](Lanes<In, Out> w) {
    float ma[16][16], mb[16][8], sum[16][8];
    ++stats().mma;
    for (unsigned lane = 0; lane < 32; ++lane) {
      const In& in = w.in(lane);
      const unsigned group = lane / 4, pair = lane % 4 * 2;
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = group + i % 2 * 8, k = pair + i / 2 * 8;
        ma[row][k] = low_of(e, in.a[i]);
        ma[row][k + 1] = high_of(e, in.a[i]);
      }
      for (unsigned i = 0; i < 2; ++i) {
        mb[pair + i * 8][group] = low_of(e, in.b[i]);
        mb[pair + i * 8 + 1][group] = high_of(e, in.b[i]);
      }
      for (unsigned i = 0; i < 4; ++i) sum[group + i / 2 * 8][pair + i % 2] = in.d[i];
    }
    for (unsigned row = 0; row < 16; ++row)
      for (unsigned k = 0; k < 16; ++k)
        for (unsigned n = 0; n < 8; ++n) sum[row][n] += ma[row][k] * mb[k][n];
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < 4; ++i) w.out(lane)[i] = sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  });
  std::copy(out.begin(), out.end(), d);
}

}  // namespace simt
