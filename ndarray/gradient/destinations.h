// Where watched arrays have their gradients written, by address: who watches another asks whether it shares memory with one of them.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_
#define TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// An array that gradients are written to, with its first byte and the one behind its last.
struct Destination {
  NDArray array;  // undefined: none was handed in
  const std::byte *begin = nullptr, *end = nullptr;

  void Set(const NDArray& to);
};

class Destinations {
 public:
  // One of those added that shares memory with `gradient`, which has some; null: none does. Of arrays that lie apart, whatever their
  // order, it looks at the neighbours alone; of those that lie between each other's elements at all.
  const Destination* Find(const NDArray& gradient);
  // So that the next Add takes no memory.
  void Reserve() {
    if (sorted_.size() == sorted_.capacity()) sorted_.reserve(2 * sorted_.size() + 16);
  }
  // Which stays where it is until Clear().
  void Add(const Destination& destination);
  // Keeps the memory.
  void Clear() {
    sorted_.clear();
    interleaves_ = false;
  }
  // How many arrays Find() has looked at, for tests.
  int64_t compared() const { return compared_; }

 private:
  using Sorted = std::vector<const Destination*>;
  // Calls visit(other) for those that have bytes in [begin, end), as far as the first and last bytes of each tell, until it is true.
  template <typename Visit>
  void VisitBetween(const std::byte* begin, const std::byte* end, const Visit& visit);

  Sorted sorted_;             // by their first bytes
  bool interleaves_ = false;  // some begin before another one's end
  int64_t compared_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_DESTINATIONS_H_
