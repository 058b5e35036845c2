// Where watched arrays have their gradients written, by address: who watches another asks whether it shares memory with one of them.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_
#define TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_

#include <cstdint>

#include "tidepool/ndarray/gradient/place_index.h"
#include "tidepool/ndarray/gradient/places.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// An array that gradients are written to, with its addresses.
struct Destination {
  NDArray array;  // undefined: none was handed in
  Places where;

  void Set(const NDArray& to);
  // None is, and nothing asks where it was.
  void Clear() { array = NDArray(); }
};

class Destinations {
 public:
  // One of those added that shares memory with that; null: none does.
  const Destination* Find(const Destination& other) const;
  // Which stays what and where it is until Clear(). Where it throws it was not added.
  void Add(Destination& destination) {
    if (destination.array.is_defined() && destination.array.buffer()) index_.Add(destination);
  }
  // Keeps the memory.
  void Clear() { index_.Clear(); }
  // How many arrays Find() has looked at, for tests.
  int64_t compared() const { return index_.compared(); }

 private:
  PlaceIndex<Destination> index_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_
