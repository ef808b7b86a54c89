// The border that no exception crosses: every function of the C interface runs inside guarded().
#pragma once
#include <exception>
#include <string>

#include "src/c_api/ringattn.h"

namespace ringattn::c_api {

// The status of an exception, whose text becomes this thread's last error.
ringattn_status record(const std::exception_ptr& error) noexcept;

template <class Body>
ringattn_status guarded(Body&& body) noexcept {
  try {
    body();
    return RINGATTN_OK;
  } catch (...) {
    return record(std::current_exception());
  }
}

// Throws UsageError "mask is a null pointer".
void require_pointer(const void* pointer, const char* name);

}  // namespace ringattn::c_api
