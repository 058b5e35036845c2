#include "tidepool/nn/distributed/collective.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {

const char* CollectiveKindName(CollectiveKind kind) {
  constexpr const char* kNames[kCollectiveKinds] = {"broadcast", "all-reduce", "reduce-scatter",
                                                    "all-gather", "barrier"};
  const auto number = static_cast<size_t>(kind);
  return number < kCollectiveKinds ? kNames[number] : "unknown";
}

size_t BytesOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
      return 8;
    case ElementType::kBytes:
      break;
  }
  return 1;
}

std::pair<int64_t, int64_t> PartOf(int64_t count, int rank, int size) {
  const int64_t whole = count / size, rest = count % size;
  const auto begin_of = [&](int64_t r) { return whole * r + std::min(r, rest); };
  return {begin_of(rank), begin_of(rank + 1)};
}

std::string CollectiveRecord::ToString() const {
  const char* const unit = type == ElementType::kFloat32   ? " f32"
                           : type == ElementType::kFloat64 ? " f64"
                                                           : " bytes";
  return absl::StrCat("collective ", sequence, " at step ", step, ": ", CollectiveKindName(kind),
                      kind == CollectiveKind::kBarrier ? "" : absl::StrCat(" of ", count, unit),
                      " [", site, "]");
}

}  // namespace tidepool::nn
