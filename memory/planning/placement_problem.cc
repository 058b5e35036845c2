#include "tidepool/memory/planning/placement_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// Leaves room to add two sums without overflow.
constexpr int64_t kLargestTotal = int64_t{1} << 62;

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
