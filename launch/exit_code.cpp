#include "launch/exit_code.h"

#include <new>

#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {

Failure failure_of(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const SharedFailure& e) {
    return e.failure();
  } catch (const WrongNumbers& e) {
    return {ExitCode::wrong_numbers, e.what()};
  } catch (const UsageError& e) {
    return {ExitCode::usage, e.what()};
  } catch (const DataError& e) {
    return {ExitCode::data, e.what()};
  } catch (const CommError& e) {
    return {ExitCode::communication, e.what()};
  } catch (const DeviceError& e) {
    return {ExitCode::device, e.what()};
  } catch (const OutOfMemory& e) {
    return {ExitCode::memory, e.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::memory, "out of memory"};
  } catch (const std::exception& e) {
    return {ExitCode::bug, std::string(e.what()) + " (internal error)"};
  } catch (...) {
    return {ExitCode::bug, "unknown exception (internal error)"};
  }
}

}  // namespace ringattn::launch
