// Warp-level matrix operations: ldmatrix, stmatrix and mma.sync.m16n8k16, with the register layouts of the
// PTX manual
// ("Warp Level Matrix Instructions").
#pragma once
#include <cstdint>

#include "tests/simt/element.h"
#include "tests/simt/fault.h"

namespace simt {

// Matrix i has its eight row addresses in lanes 8i..8i+7. Lane l receives two neighbouring elements of row l
// / 4 (with trans: of column l / 4).
void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address, bool trans, const Where& where);
void ldmatrix(std::uint32_t (&r)[2], std::uint32_t address, bool trans, const Where& where);
void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4], bool trans, const Where& where);

// d += a (16x16, row) * b (16x8, col), fp32 sums in ascending k. The order of additions inside the tensor
// core is not documented: expect equality with hardware up to rounding, not bit for bit.
void mma_m16n8k16(Element e, float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  const Where& where);

}  // namespace simt
