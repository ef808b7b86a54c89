#include "bench/gpu/units.h"

#include <exception>

namespace ringattn::acceptance {

void check_units(int capability, Lines& lines) {
  for (const auto& units : {warp_units(), async_units(), wgmma_units()})
    for (const Unit& unit : units) {
      if (capability < unit.lowest || capability > unit.highest) continue;
      Check result{.part = "units", .name = unit.name};
      try {
        result.detail = unit.run();
      } catch (const std::exception& error) {
        result.detail = error.what();
      }
      result.status = result.detail.empty() ? Status::ok : Status::failed;
      lines.write(result);
    }
}

}  // namespace ringattn::acceptance
