#include "tidepool/ndarray/gradient/destinations.h"

#include "tidepool/ndarray/gradient/taped_view.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

// By address: buffers share memory where one was imported.
Places AddressesOf(const NDArray& array) {
  return Places(FreeView(array))
      .Shifted(static_cast<int64_t>(reinterpret_cast<intptr_t>(array.buffer()->data)));
}

}  // namespace

void Destination::Set(const NDArray& to) {
  array = to;
  where = to.is_defined() && to.buffer() ? AddressesOf(to) : Places();
}

const Destination* Destinations::Find(const NDArray& gradient) const {
  if (!gradient.buffer()) return nullptr;
  const Destination* found = nullptr;
  index_.VisitOverlapping(AddressesOf(gradient), [&](const Destination& other) {
    if (ViewsOverlap(other.array, gradient)) found = &other;
    return found != nullptr;
  });
  return found;
}

}  // namespace tidepool
