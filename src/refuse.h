// One wording for every refused argument: its name, its value and what is allowed.
#pragma once
#include <limits>
#include <string>
#include <string_view>

#include "src/error.h"
#include "src/types.h"

namespace ringattn {

// Throws UsageError "dtype is 'f64'; allowed are f32, bf16 and f16".
[[noreturn]] inline void refuse(const std::string& name, const std::string& value,
                                const std::string& allowed) {
  throw UsageError(name + " is " + value + "; " + allowed);
}

// 'value' in quotation marks. (Appending, because g++ 12 warns wrongly about "'" + string, GCC bug 105651.)
inline std::string quoted(std::string_view value) { return std::string("'").append(value).append("'"); }

inline void require_between(const std::string& name, index_t value, index_t least, index_t most) {
  if (least <= value && value <= most) return;
  refuse(name, std::to_string(value),
         most == std::numeric_limits<index_t>::max()
             ? "allowed is " + std::to_string(least) + " or more"
             : "allowed are " + std::to_string(least) + " to " + std::to_string(most));
}

}  // namespace ringattn
