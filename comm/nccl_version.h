// Which NCCL there is, for whoever only wants to say so.
#pragma once
#include <string>

namespace ringattn {

// Of the library that is loaded, "2.28.9"; "" in a build without NCCL.
std::string nccl_version();

}  // namespace ringattn
