// Sorting, places in sorted order, the k largest and searching, by std::stable_sort of one lane after another.
#include <algorithm>
#include <numeric>
#include <vector>

#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// NaN is larger than everything else.
template <typename T>
bool IsLess(T a, T b) {
  return a < b || (a == a && b != b);
}

// visit(x, z, stride) for each lane along the axis, where z is an offset for outputs of z_size.
template <typename T, typename Visit>
void ForEachLane(const TensorRef& x, int axis, int64_t z_size, Visit visit) {
  const AxisSplit split(x, axis);
  for (int64_t o = 0; o < split.outer; ++o) {
    for (int64_t k = 0; k < split.inner; ++k) {
      std::vector<T> lane;
      lane.reserve(split.size);
      for (int64_t i = 0; i < split.size; ++i) {
        lane.push_back(x.as<T>()[(o * split.size + i) * split.inner + k]);
      }
      visit(lane, o * z_size * split.inner + k, split.inner);
    }
  }
}

template <typename T>
std::vector<int64_t> SortedPlaces(const std::vector<T>& lane, bool descending) {
  std::vector<int64_t> places(lane.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    return descending ? IsLess<T>(lane[b], lane[a]) : IsLess<T>(lane[a], lane[b]);
  });
  return places;
}

template <typename T>
void Sort(const KernelCall& call) {
  const auto& a = call.attrs<SortAttributes>();
  const TensorRef& x = call.inputs[0];
  ForEachLane<T>(x, a.axis, x.dims[a.axis],
                 [&](const std::vector<T>& lane, int64_t z, int64_t stride) {
                   for (const int64_t place : SortedPlaces(lane, a.descending)) {
                     call.outputs[0].as<T>()[z] = lane[place];
                     z += stride;
                   }
                 });
}

template <typename T>
void ArgSort(const KernelCall& call) {
  const auto& a = call.attrs<SortAttributes>();
  const TensorRef& x = call.inputs[0];
  ForEachLane<T>(x, a.axis, x.dims[a.axis],
                 [&](const std::vector<T>& lane, int64_t z, int64_t stride) {
                   for (const int64_t place : SortedPlaces(lane, a.descending)) {
                     call.outputs[0].as<int64_t>()[z] = place;
                     z += stride;
                   }
                 });
}

template <typename T>
void TopK(const KernelCall& call) {
  const int axis = call.attrs<AxisAttributes>().axis;
  const int64_t k = call.outputs[0].dims[axis];
  ForEachLane<T>(call.inputs[0], axis, k,
                 [&](const std::vector<T>& lane, int64_t z, int64_t stride) {
                   const std::vector<int64_t> places = SortedPlaces(lane, true);
                   for (int64_t i = 0; i < k; ++i, z += stride) {
                     call.outputs[0].as<T>()[z] = lane[places[i]];
                     call.outputs[1].as<int64_t>()[z] = places[i];
                   }
                 });
}

// As std::lower_bound and std::upper_bound with the order of Sort(). Without branches on elements: at random each second
// one would be guessed wrong.
template <typename T>
void SearchSorted(const KernelCall& call) {
  const bool right = call.attrs<SearchSortedAttributes>().right;
  const T* sorted = call.inputs[0].as<T>();
  const int64_t size = call.inputs[0].NumElements(), count = call.inputs[1].NumElements();
  for (int64_t i = 0; i < count; ++i) {
    const T value = call.inputs[1].as<T>()[i];
    const auto is_before = [&](T x) {
      return right ? ((value < x) | ((value == value) & (x != x))) == 0
                   : ((x < value) | ((x == x) & (value != value))) != 0;
    };
    int64_t begin = 0;
    for (int64_t rest = size; rest > 0;) {
      const int64_t half = (rest + 1) / 2;
      begin += half * static_cast<int64_t>(is_before(sorted[begin + half - 1]));
      rest -= half;
    }
    call.outputs[0].as<int64_t>()[i] = begin;
  }
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitDType(dtype, [&](auto t) {
      using T = decltype(t);
      auto add = [&](OpCode op, void (*run)(const KernelCall&)) {
        KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "reference", 0, run});
      };
      add(OpCode::kSort, &Sort<T>);
      add(OpCode::kArgSort, &ArgSort<T>);
      add(OpCode::kTopK, &TopK<T>);
      add(OpCode::kSearchSorted, &SearchSorted<T>);
    });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
