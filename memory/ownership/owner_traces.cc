#include "tidepool/memory/ownership/owner_traces.h"

#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracing.h"

namespace tidepool::internal {
namespace {

struct Traced {
  std::string what;
  AllocationTrace made;
};

std::mutex& TracesMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::map<uint64_t, Traced>& Traces() {
  static auto& traces = *new std::map<uint64_t, Traced>;
  return traces;
}

}  // namespace

void TraceOwned(Buffer& buffer, std::string what) noexcept {
  try {
    Traced traced{std::move(what), {}};
    traced.made.Capture();
    std::lock_guard<std::mutex> lock(TracesMutex());
    Traces()[buffer.id] = std::move(traced);
    buffer.care.fetch_or(Buffer::kTraced, std::memory_order_relaxed);
  } catch (const std::exception&) {
    // Errors and dumps will say less about it.
  }
}

void ForgetOwned(uint64_t buffer_id) noexcept {
  std::lock_guard<std::mutex> lock(TracesMutex());
  Traces().erase(buffer_id);
}

std::string DescribeOwned(uint64_t buffer_id) {
  std::lock_guard<std::mutex> lock(TracesMutex());
  const auto found = Traces().find(buffer_id);
  if (found == Traces().end()) return "";
  return absl::StrCat(found->second.what, " made at ", found->second.made.Site());
}

}  // namespace tidepool::internal
