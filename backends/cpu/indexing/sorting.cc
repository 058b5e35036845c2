// Sorting, places in sorted order and the k largest, a lane along the axis at a time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/backends/cpu/indexing/radix_sort.h"
#include "tidepool/backends/cpu/indexing/sort_keys.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kSortWork = 32;  // sorting an element, in elementary operations
constexpr size_t kAlign = 64;
// So many of the largest are kept in order while x is read once.
constexpr int64_t kFewLargest = 32;

int AxisOf(const KernelCall& call) {
  return call.op == OpCode::kTopK ? call.attrs<AxisAttributes>().axis
                                  : call.attrs<SortAttributes>().axis;
}

template <typename T>
using Item = KeyedPlace<SortKey<T>, uint32_t>;
template <typename T>
using KeyItem = KeyedPlace<SortKey<T>, NoPlace>;

// Places of longer lanes do not fit; the next provider takes those.
bool PlacesFit(const KernelCall& call) { return call.inputs[0].dims[AxisOf(call)] <= UINT32_MAX; }

template <typename ItemType>
size_t LaneBytes(int64_t n) {
  return (2 * static_cast<size_t>(n) * sizeof(ItemType) + kAlign - 1) / kAlign * kAlign;
}

template <typename ItemType>
size_t Scratch(const KernelCall& call) {
  const AxisSplit split(call.inputs[0], AxisOf(call));
  const int64_t lanes = split.outer * split.inner;
  return LaneBytes<ItemType>(split.size) *
         std::min<int64_t>(call.threads.count, std::max<int64_t>(1, lanes));
}

// run(x, items, z offset) for each lane; items: room for twice the lane.
template <typename T, typename ItemType, typename Run>
void ForEachLane(const KernelCall& call, int64_t z_size, Run run) {
  const AxisSplit split(call.inputs[0], AxisOf(call));
  const T* x = call.inputs[0].as<T>();
  const int64_t lanes = split.outer * split.inner;
  auto lane_of = [&](int64_t lane, int slot) {
    const int64_t outer = lane / split.inner, inner = lane % split.inner;
    auto* room = static_cast<std::byte*>(call.scratch) + slot * LaneBytes<ItemType>(split.size);
    run(x + outer * split.size * split.inner + inner, reinterpret_cast<ItemType*>(room),
        outer * z_size * split.inner + inner, split);
  };
  const int64_t per_task = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, split.size));
  const int64_t tasks = (lanes + per_task - 1) / per_task;
  auto task = [&](int64_t index, int slot) {
    const int64_t end = std::min((index + 1) * per_task, lanes);
    for (int64_t lane = index * per_task; lane < end; ++lane) lane_of(lane, slot);
  };
  std::shared_ptr<ThreadPool> pool;
  if (tasks > 1 && lanes * split.size * kSortWork >= kMinParallelWork) pool = PoolOf(call.threads);
  if (pool != nullptr) return pool->Run(tasks, task);
  for (int64_t index = 0; index < tasks; ++index) task(index, 0);
}

// Keys of the other direction; equals stay in their order.
template <typename Key>
Key Turned(Key key, bool descending) {
  return descending ? static_cast<Key>(~key) : key;
}

// -0 and 0 have keys of their own, so that they can be had back, and are equals: as the lane has them.
template <typename T>
void KeepOrderOfZeros(const T* x, int64_t stride, bool descending, KeyItem<T>* sorted, int64_t n) {
  if constexpr (kIsFloat<T>) {
    using Key = SortKey<T>;
    const Key zero = Turned(KeyOf<T, true>(T(0.0f)), descending),
              negative = Turned(KeyOf<T, true>(T(-0.0f)), descending);
    const KeyItem<T> low{std::min(zero, negative), {}}, high{std::max(zero, negative), {}};
    const auto is_less = [](const KeyItem<T>& a, const KeyItem<T>& b) { return a.key < b.key; };
    KeyItem<T>* at = std::lower_bound(sorted, sorted + n, low, is_less);
    KeyItem<T>* const end = std::upper_bound(at, sorted + n, high, is_less);
    if (at == end || at->key == end[-1].key) return;  // of one sign
    for (int64_t i = 0; at != end; ++i) {
      const Key key = Turned(KeyOf<T, true>(x[i * stride]), descending);
      if (key == zero || key == negative) (at++)->key = key;
    }
  }
}

template <typename T>
void Sort(const KernelCall& call) {
  const bool descending = call.attrs<SortAttributes>().descending;
  T* z = call.outputs[0].as<T>();
  const int64_t n = call.inputs[0].dims[AxisOf(call)];
  ForEachLane<T, KeyItem<T>>(
      call, n, [&](const T* x, KeyItem<T>* items, int64_t at, const AxisSplit& split) {
        for (int64_t i = 0; i < n; ++i) {
          items[i].key = Turned(KeyOf<T, true>(x[i * split.inner]), descending);
        }
        KeyItem<T>* const sorted = RadixSort(items, items + n, n);
        KeepOrderOfZeros(x, split.inner, descending, sorted, n);
        for (int64_t i = 0; i < n; ++i) {
          z[at + i * split.inner] = ValueOf<T>(Turned(sorted[i].key, descending));
        }
      });
}

template <typename T>
const Item<T>* SortPlaces(const T* x, int64_t stride, int64_t n, bool descending, Item<T>* items) {
  for (int64_t i = 0; i < n; ++i) {
    items[i].key = Turned(KeyOf<T, false>(x[i * stride]), descending);
    items[i].place = static_cast<uint32_t>(i);
  }
  return RadixSort(items, items + n, n);
}

template <typename T>
void ArgSort(const KernelCall& call) {
  const bool descending = call.attrs<SortAttributes>().descending;
  int64_t* z = call.outputs[0].as<int64_t>();
  const int64_t n = call.inputs[0].dims[AxisOf(call)];
  ForEachLane<T, Item<T>>(
      call, n, [&](const T* x, Item<T>* items, int64_t at, const AxisSplit& split) {
        const Item<T>* sorted = SortPlaces(x, split.inner, n, descending, items);
        for (int64_t i = 0; i < n; ++i) z[at + i * split.inner] = sorted[i].place;
      });
}

// The k with the smallest turned keys, in order, by one pass.
template <typename T>
const Item<T>* FewLargest(const T* x, int64_t stride, int64_t n, int64_t k, Item<T>* best) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const SortKey<T> key = Turned(KeyOf<T, false>(x[i * stride]), true);
    if (count == k && key >= best[k - 1].key) continue;
    int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && best[at - 1].key > key; --at) best[at] = best[at - 1];
    best[at] = {key, static_cast<uint32_t>(i)};
  }
  return best;
}

template <typename T>
void TopK(const KernelCall& call) {
  T* values = call.outputs[0].as<T>();
  int64_t* places = call.outputs[1].as<int64_t>();
  const int axis = AxisOf(call);
  const int64_t n = call.inputs[0].dims[axis], k = call.outputs[0].dims[axis];
  ForEachLane<T, Item<T>>(
      call, k, [&](const T* x, Item<T>* items, int64_t at, const AxisSplit& split) {
        const Item<T>* best = k <= kFewLargest ? FewLargest(x, split.inner, n, k, items)
                                               : SortPlaces(x, split.inner, n, true, items);
        for (int64_t i = 0; i < k; ++i) {
          values[at + i * split.inner] = x[best[i].place * split.inner];
          places[at + i * split.inner] = best[i].place;
        }
      });
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitDType(dtype, [&](auto t) {
      using T = decltype(t);
      auto add = [&](OpCode op, void (*run)(const KernelCall&),
                     size_t (*scratch)(const KernelCall&), bool (*supports)(const KernelCall&)) {
        KernelRegistry::Global().Add(
            {op, DeviceType::kHost, dtype, "cpu", 10, run, scratch, supports});
      };
      add(OpCode::kSort, &Sort<T>, &Scratch<KeyItem<T>>, nullptr);
      add(OpCode::kArgSort, &ArgSort<T>, &Scratch<Item<T>>, &PlacesFit);
      add(OpCode::kTopK, &TopK<T>, &Scratch<Item<T>>, &PlacesFit);
    });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
