// Text that came out of a file or a command line, made fit for one line of an error message.
#pragma once
#include <string>
#include <string_view>

namespace ringattn {

// 'text', with every byte that is not printable ASCII as \xNN and at most 60 bytes of it; a longer one ends
// in
// "...". A hostile header can therefore neither forge lines of a log nor flood it.
std::string printable(std::string_view text);

}  // namespace ringattn
