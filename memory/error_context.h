// Context for errors that others may hold as well.
//
//   } catch (const Error&) {
//     error = WithContext(std::current_exception(), "batches: batch 3");
//   }
//
// An exception that was kept (std::exception_ptr, std::future) and is rethrown is one object for
// all who catch it, on any thread: Error::AddContext() would change it under the others, and once
// more each time. This makes another one. Where an error can only be one's own AddContext() does.
//
// Threads: pure functions of what nobody changes meanwhile.
#ifndef TIDEPOOL_MEMORY_ERROR_CONTEXT_H_
#define TIDEPOOL_MEMORY_ERROR_CONTEXT_H_

#include <exception>
#include <string>
#include <typeinfo>
#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool {

// A copy with "context: " in front of its message, if its type is Error, OutOfMemoryError or one of
// `MoreKinds`, which are derived from Error. What is of another type, Tidepool's or not, is
// returned as it is: only who knows a type can copy it. `error` is not null.
template <typename... MoreKinds>
std::exception_ptr WithContext(const std::exception_ptr& error, const std::string& context) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    std::exception_ptr made;
    const auto copy_of = [&]<typename Kind>(const Kind* /*type*/) {
      if (typeid(known) != typeid(Kind)) return false;
      Kind copy = static_cast<const Kind&>(known);
      copy.AddContext(context);
      made = std::make_exception_ptr(std::move(copy));
      return true;
    };
    const bool is_copied = (copy_of(static_cast<const Error*>(nullptr)) || ... ||
                            copy_of(static_cast<const MoreKinds*>(nullptr))) ||
                           copy_of(static_cast<const OutOfMemoryError*>(nullptr));
    return is_copied ? made : error;
  } catch (...) {
    return error;
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ERROR_CONTEXT_H_
