#include "tidepool/memory/stack.h"

#include <alloca.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>

namespace tidepool {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLeft = size_t{32} << 10;

// From here to the end of the stack; 0: not known.
size_t StackLeft() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t size = 0, guard = 0;
  const bool is_known = pthread_attr_getstack(&attributes, &lowest, &size) == 0 &&
                        pthread_attr_getguardsize(&attributes, &guard) == 0;
  pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const auto end = reinterpret_cast<uintptr_t>(lowest) + guard;
  return is_known && here > end ? here - end : 0;
}

// A frame of its own, which is gone when it returns.
__attribute__((noinline)) void Touch(size_t bytes) {
  auto* const stack = static_cast<volatile char*>(alloca(bytes));
  // From its beginning, as it grows: downwards.
  for (size_t at = bytes; at > 0; at -= std::min(at, kPageBytes)) stack[at - 1] = 0;
}

}  // namespace

__attribute__((noinline)) size_t TouchStack(size_t bytes) {
  const size_t left = StackLeft();
  bytes = std::min(bytes, left > kLeft ? left - kLeft : 0);
  if (bytes > 0) Touch(bytes);
  return bytes;
}

}  // namespace tidepool
