// What memory resources and allocators of the standard library's kind throw here when there is no
// memory.
//
// The standard's containers promise std::bad_alloc and callers catch that; OutOfMemoryError is a
// std::exception through Error, and one that were both would be two of them, which `catch (const
// std::exception&)` does not catch. So the one becomes the other where containers ask.
#ifndef TIDEPOOL_MEMORY_PMR_BAD_ALLOC_H_
#define TIDEPOOL_MEMORY_PMR_BAD_ALLOC_H_

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool {

// A std::bad_alloc that says which workspace or limit refused what, with the memory report of that
// moment.
class OutOfMemoryBadAlloc final : public std::bad_alloc {
 public:
  explicit OutOfMemoryBadAlloc(OutOfMemoryError error)
      : error_(std::make_shared<const OutOfMemoryError>(std::move(error))) {}

  // Message and report of the OutOfMemoryError; they live as long as a copy of this.
  const char* what() const noexcept override { return error_->what(); }
  const std::string& report() const { return error_->report(); }

 private:
  std::shared_ptr<const OutOfMemoryError> error_;  // copying an exception does not throw
};

namespace internal {

// Runs `allocate`, whose OutOfMemoryError becomes that. Others go through: a device that fails is
// not lack of memory.
template <typename Allocate>
void* OrBadAlloc(const Allocate& allocate) {
  try {
    return allocate();
  } catch (OutOfMemoryError& error) {
    throw OutOfMemoryBadAlloc(std::move(error));
  }
}

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PMR_BAD_ALLOC_H_
