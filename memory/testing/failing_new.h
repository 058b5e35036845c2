// Replaces operator new by one that can fail. Defines the operators: include it in exactly one source
// file of a test, which owns its program's allocations.
#ifndef TIDEPOOL_MEMORY_TESTING_FAILING_NEW_H_
#define TIDEPOOL_MEMORY_TESTING_FAILING_NEW_H_

#include <cstdint>
#include <cstdlib>
#include <new>

#include "tidepool/memory/error.h"

namespace {

thread_local bool faults_on = false;
thread_local int64_t until_fault = 0;
thread_local bool fault_happened = false;
// If set: whether the allocation at hand is somebody else's, and neither counts nor fails.
[[maybe_unused]] bool (*fault_spares)() = nullptr;

void* AllocateOrNull(size_t bytes) noexcept {
  if (faults_on && (fault_spares == nullptr || !fault_spares()) && until_fault-- == 0) {
    fault_happened = true;
    return nullptr;
  }
  return std::malloc(bytes);
}
void* AllocateOrFail(size_t bytes) {
  if (void* data = AllocateOrNull(bytes)) return data;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return AllocateOrFail(bytes); }
void* operator new[](size_t bytes) { return AllocateOrFail(bytes); }
// Sanitizers have these of their own, which would not fit the deletes below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }

namespace tidepool {
namespace {

// Runs `step` with faults; true when it went through.
template <typename Step>
bool Try(const Step& step) {
  faults_on = true;
  try {
    step();
    faults_on = false;
    return true;
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  }
  faults_on = false;
  return false;
}

}  // namespace
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_FAILING_NEW_H_
