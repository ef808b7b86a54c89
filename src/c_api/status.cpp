#include "src/c_api/status.h"

#include "src/error.h"

namespace ringattn::c_api {
namespace {

// Per thread, so that one thread's error is never read as another's.
thread_local std::string last_error;

ringattn_status remember(ringattn_status status, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {  // no memory for the text: the status must do
    last_error.clear();
  }
  return status;
}

}  // namespace

ringattn_status record(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return remember(RINGATTN_USAGE, e.what());
  } catch (const DataError& e) {
    return remember(RINGATTN_DATA, e.what());
  } catch (const CommError& e) {
    return remember(RINGATTN_COMM, e.what());
  } catch (const DeviceError& e) {
    return remember(RINGATTN_DEVICE, e.what());
  } catch (const OutOfMemory& e) {
    return remember(RINGATTN_MEMORY, e.what());
  } catch (const std::bad_alloc&) {
    return remember(RINGATTN_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return remember(RINGATTN_INTERNAL, e.what());
  } catch (...) {
    return remember(RINGATTN_INTERNAL, "an exception of unknown type");
  }
}

void require_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) throw UsageError(std::string(name) + " is a null pointer");
}

}  // namespace ringattn::c_api

// The version is written in the header, for callers that compile, and in CMakeLists.txt, for the package.
#define RINGATTN_TEXT(x) #x
#define RINGATTN_VERSION_TEXT(major, minor, patch) \
  RINGATTN_TEXT(major) "." RINGATTN_TEXT(minor) "." RINGATTN_TEXT(patch)
static constexpr std::string_view kHeaderVersion =
    RINGATTN_VERSION_TEXT(RINGATTN_VERSION_MAJOR, RINGATTN_VERSION_MINOR, RINGATTN_VERSION_PATCH);
static_assert(kHeaderVersion == RINGATTN_PROJECT_VERSION, "ringattn.h and CMakeLists.txt name two versions");

const char* ringattn_version(void) { return kHeaderVersion.data(); }

int32_t ringattn_version_number(void) {
  return 10000 * RINGATTN_VERSION_MAJOR + 100 * RINGATTN_VERSION_MINOR + RINGATTN_VERSION_PATCH;
}

const char* ringattn_last_error(void) { return ringattn::c_api::last_error.c_str(); }

const char* ringattn_status_name(ringattn_status status) {
  switch (status) {
    case RINGATTN_OK:
      return "ok";
    case RINGATTN_USAGE:
      return "usage";
    case RINGATTN_DATA:
      return "data";
    case RINGATTN_COMM:
      return "comm";
    case RINGATTN_DEVICE:
      return "device";
    case RINGATTN_MEMORY:
      return "memory";
    case RINGATTN_INTERNAL:
      return "internal";
    default:
      return "unknown";
  }
}
