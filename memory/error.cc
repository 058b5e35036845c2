#include "tidepool/memory/error.h"

#include <cstring>
#include <new>
#include <utility>

namespace tidepool {

void ThrowInvalidArgument(std::string message) {
  throw Error(absl::StatusCode::kInvalidArgument, std::move(message));
}
void ThrowFailedPrecondition(std::string message) {
  throw Error(absl::StatusCode::kFailedPrecondition, std::move(message));
}
void ThrowNotFound(std::string message) {
  throw Error(absl::StatusCode::kNotFound, std::move(message));
}
void ThrowDataLoss(std::string message) {
  throw Error(absl::StatusCode::kDataLoss, std::move(message));
}
void ThrowUnimplemented(std::string message) {
  throw Error(absl::StatusCode::kUnimplemented, std::move(message));
}
void ThrowResourceExhausted(std::string message) {
  throw Error(absl::StatusCode::kResourceExhausted, std::move(message));
}
void ThrowInternal(std::string message) {
  throw Error(absl::StatusCode::kInternal, std::move(message));
}
void ThrowErrno(int error_number, std::string what) {
  throw Error(absl::ErrnoToStatusCode(error_number), what + ": " + std::strerror(error_number));
}

absl::Status CatchStatus(absl::FunctionRef<void()> function) {
  try {
    function();
    return absl::OkStatus();
  } catch (const Error& error) {
    return absl::Status(error.code(), error.message());
  } catch (const std::bad_alloc& error) {
    // Of containers in a workspace it says which one was refused what (memory/pmr/bad_alloc.h).
    const std::string what = error.what();
    return absl::ResourceExhaustedError(
        what == "std::bad_alloc" ? "std::bad_alloc: the C++ heap is exhausted" : what);
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace tidepool
