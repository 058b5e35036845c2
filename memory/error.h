// The one exception type of Tidepool.
//
// Every public call that can fail throws tidepool::Error. It carries an absl::StatusCode, a
// one-line message that names what, where, found and expected, and optional context added on the
// way up. Refusals that are normal on hot paths are enum results inside the library, never
// exceptions. Destructors do not throw.
//
//   absl::Status status = CatchStatus([&] { Train(network, data); });   // for Status users
//
// Threads: values, no shared state.
#ifndef TIDEPOOL_MEMORY_ERROR_H_
#define TIDEPOOL_MEMORY_ERROR_H_

#if defined(__cplusplus) && __cplusplus < 202002L
#error \
    "Tidepool needs C++20: put build --cxxopt=-std=c++20 into .bazelrc, or copts = [\"-std=c++20\"] into the target"
#endif

#include <exception>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace tidepool {

class Error : public std::exception {
 public:
  Error(absl::StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  // What kind of error it is, and the message, with its context in front; what() is the message
  // too.
  absl::StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

  // Puts "context: " in front of the message; for callers that know more (a file, a layer).
  void AddContext(const std::string& context) { message_ = context + ": " + message_; }

 private:
  absl::StatusCode code_;
  std::string message_;
};

// Code kResourceExhausted. `report` is the memory report at the time of the failure.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(std::string message, std::string report)
      : Error(absl::StatusCode::kResourceExhausted, std::move(message)),
        report_(std::move(report)) {}

  // Several lines of the ledger: who holds how much.
  const std::string& report() const { return report_; }

 private:
  std::string report_;
};

// Throw an Error of the code in the name, its message joined from any mix of strings and numbers
// by the caller (absl::StrCat). Out of line so that throwing costs callers one call instruction.
[[noreturn]] void ThrowInvalidArgument(std::string message);
[[noreturn]] void ThrowFailedPrecondition(std::string message);
[[noreturn]] void ThrowNotFound(std::string message);
[[noreturn]] void ThrowDataLoss(std::string message);
[[noreturn]] void ThrowUnimplemented(std::string message);
[[noreturn]] void ThrowResourceExhausted(std::string message);
[[noreturn]] void ThrowInternal(std::string message);
// Code from errno (kNotFound, kPermissionDenied, ...), message "<what>: <strerror>".
[[noreturn]] void ThrowErrno(int error_number, std::string what);

// Runs `function`; an Error becomes its Status, std::bad_alloc kResourceExhausted, any other
// std::exception kInternal.
absl::Status CatchStatus(absl::FunctionRef<void()> function);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ERROR_H_
