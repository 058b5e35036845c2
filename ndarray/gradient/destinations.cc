#include "tidepool/ndarray/gradient/destinations.h"

#include "tidepool/ndarray/gradient/taped_view.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {

void Destination::Set(const NDArray& to) {
  array = to;
  // By address: buffers share memory where one was imported.
  if (to.is_defined() && to.buffer())
    where = Places(to).Shifted(static_cast<int64_t>(reinterpret_cast<intptr_t>(to.buffer()->data)));
}

const Destination* Destinations::Find(const Destination& other) const {
  if (!other.array.is_defined() || !other.array.buffer()) return nullptr;
  const Destination* found = nullptr;
  index_.VisitOverlapping(other.where, [&](const Destination& added) {
    if (ViewsOverlap(added.array, other.array)) found = &added;
    return found != nullptr;
  });
  return found;
}

}  // namespace tidepool
