// Does a layout hold every position exactly once?
#pragma once
#include "src/layout.h"

namespace ringattn {

// Throws UsageError naming the first position that no rank or more than one segment holds, and the ranks.
// Memory O(segments). Time O(n log segments), where n counts a segment of stride 1 once and any other by its
// rows.
void require_each_position_once(const Layout& layout);

}  // namespace ringattn
