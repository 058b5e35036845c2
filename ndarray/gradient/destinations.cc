#include "tidepool/ndarray/gradient/destinations.h"

#include <algorithm>
#include <tuple>

#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {

void Destination::Set(const NDArray& to) {
  array = to;
  begin = end = nullptr;
  if (to.is_defined() && to.buffer()) std::tie(begin, end) = ExtentOf(to);
}

template <typename Visit>
void Destinations::VisitBetween(const std::byte* begin, const std::byte* end, const Visit& visit) {
  auto at = std::partition_point(sorted_.begin(), sorted_.end(),
                                 [end](const Destination* other) { return other->begin < end; });
  while (at != sorted_.begin()) {
    const Destination& other = **--at;
    ++compared_;
    if (other.end > begin) {
      if (visit(other)) return;
    } else if (!interleaves_) {
      return;  // those before it end before it begins
    }
  }
}

const Destination* Destinations::Find(const NDArray& gradient) {
  if (!gradient.buffer()) return nullptr;
  const auto [begin, end] = ExtentOf(gradient);
  const Destination* found = nullptr;
  VisitBetween(begin, end, [&](const Destination& other) {
    if (ViewsOverlap(other.array, gradient)) found = &other;
    return found != nullptr;
  });
  return found;
}

void Destinations::Add(const Destination& destination) {
  if (destination.begin == nullptr) return;
  if (!interleaves_) {
    VisitBetween(destination.begin, destination.end,
                 [&](const Destination&) { return interleaves_ = true; });
  }
  const auto at = std::partition_point(sorted_.begin(), sorted_.end(), [&](const Destination* d) {
    return d->begin < destination.begin;
  });
  sorted_.insert(at, &destination);
}

}  // namespace tidepool
