#include "tidepool/memory/planning/placement_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// Leaves room to add two sums without overflow.
constexpr int64_t kLargestTotal = int64_t{1} << 62;

// Buffer i begins at time i, as the requests of a cycle do.
bool AreNumbered(absl::Span<const LifetimeBuffer> buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].lower != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Of numbered buffers, without memory: a learned ring asks it for batches. The ends within a window of
// time are summed up by their time; all buffers are looked at for each window.
int64_t LiveBoundOfNumbered(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  constexpr int64_t kWindow = 4096;
  int64_t ending[kWindow];
  const auto count = static_cast<int64_t>(buffers.size());
  int64_t live = 0;
  int64_t largest = 0;
  for (int64_t first = 0; first < count; first += kWindow) {
    const int64_t times = std::min(kWindow, count - first);
    std::fill_n(ending, times, 0);
    for (int64_t i = 0; i < first + times; ++i) {
      const int64_t end = buffers[static_cast<size_t>(i)].upper - first;
      if (end >= 0 && end < times) {
        ending[end] += AlignedSize(buffers[static_cast<size_t>(i)].size, alignment);
      }
    }
    for (int64_t time = 0; time < times; ++time) {
      live +=
          AlignedSize(buffers[static_cast<size_t>(first + time)].size, alignment) - ending[time];
      largest = std::max(largest, live);
    }
  }
  return largest;
}

}  // namespace

int64_t AlignedSize(int64_t size, int64_t alignment) {
  return (size / alignment + (size % alignment != 0)) * alignment;
}

void CheckPlacementProblem(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  if (alignment < 1 || alignment > kLargestTotal) {
    ThrowInvalidArgument(
        absl::StrCat("placement: alignment ", alignment, ", expected 1 to 2^62 bytes"));
  }
  int64_t total = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const LifetimeBuffer& buffer = buffers[i];
    if (buffer.upper <= buffer.lower) {
      ThrowInvalidArgument(absl::StrCat("placement: buffer ", i, " lives in [", buffer.lower, ", ",
                                        buffer.upper, "), expected lower < upper"));
    }
    if (buffer.size < 0) {
      ThrowInvalidArgument(
          absl::StrCat("placement: buffer ", i, " has size ", buffer.size, ", expected >= 0"));
    }
    if (buffer.size > kLargestTotal - alignment ||
        AlignedSize(buffer.size, alignment) > kLargestTotal - total) {
      ThrowInvalidArgument(absl::StrCat("placement: buffer ", i, " of ", buffer.size,
                                        " bytes takes the sum of sizes beyond 2^62"));
    }
    total += AlignedSize(buffer.size, alignment);
  }
}

int64_t LiveLowerBound(absl::Span<const LifetimeBuffer> buffers, int64_t alignment) {
  CheckPlacementProblem(buffers, alignment);
  if (AreNumbered(buffers)) return LiveBoundOfNumbered(buffers, alignment);
  // At equal times the negative change sorts first: lifetimes are half open.
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * buffers.size());
  for (const LifetimeBuffer& buffer : buffers) {
    const int64_t size = AlignedSize(buffer.size, alignment);
    changes.emplace_back(buffer.lower, size);
    changes.emplace_back(buffer.upper, -size);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0;
  int64_t largest = 0;
  for (const auto& change : changes) {
    live += change.second;
    largest = std::max(largest, live);
  }
  return largest;
}

}  // namespace tidepool
