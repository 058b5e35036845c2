// What is the process's in the C API.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/tools/c_api/calls.h"

using namespace tidepool;         // NOLINT: the functions of C have no namespace
using namespace tidepool::c_api;  // NOLINT

int32_t tidepool_api_version(void) { return TIDEPOOL_API_VERSION; }

const char* tidepool_status_name(tidepool_status status) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  const auto code = static_cast<uint32_t>(status);
  return code < std::size(kNames) ? kNames[code] : "no status";
}

tidepool_status tidepool_memory_report(char** json) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "json", json);
    *json = NewText(MemoryTracker::Global().Snapshot().ToJson());
  });
}

tidepool_status tidepool_set_memory_limit(const char* device, int64_t bytes) {
  return Call(__func__, [&](const char*) {
    if (device == nullptr) {
      MemoryBudget::Global().SetProcessLimit(bytes);
    } else {
      MemoryBudget::Global().SetDeviceLimit(DeviceNamed(device), bytes);
    }
  });
}

tidepool_status tidepool_set_threads(int32_t threads) {
  return Call(__func__, [&](const char* function) {
    if (threads < 1 || threads > 1024)
      ThrowInvalidArgument(
          absl::StrCat(function, ": threads are ", threads, ", expected 1 to 1024"));
    SetThreadCount(threads);
  });
}

tidepool_status tidepool_kernels(char** text) {
  return Call(__func__, [&](const char* function) {
    Clear(function, "text", text);
    *text = NewText(KernelRegistry::Global().Table());
  });
}
