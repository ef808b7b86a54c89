// Single instructions on the hardware: what fragments, descriptors, swizzles, barriers and copies do, against
// plain arithmetic on the host. tests/simt asks its own description of the instructions the same questions;
// where the two differ, the description is wrong, and so is every kernel that was proven with it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu/lines.h"

namespace ringattn::acceptance {

struct Unit {
  std::string name;
  int lowest, highest;               // compute capabilities that have it, 10 major + minor
  std::function<std::string()> run;  // says what is wrong; empty if nothing is
};

std::vector<Unit> warp_units();   // shuffles, cp.async, ldmatrix, mma.sync, barriers, conversions: sm_80
std::vector<Unit> async_units();  // stmatrix, mbarrier, TMA, bulk reduction, elect, setmaxnreg: sm_90
std::vector<Unit> wgmma_units();  // products of a warpgroup in every arrangement of operands: sm_90a

// One check for each that a device of that compute capability has.
void check_units(int capability, Lines& lines);

}  // namespace ringattn::acceptance
