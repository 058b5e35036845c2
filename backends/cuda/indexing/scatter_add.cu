// Z[.., indices[i], ..] += updates[.., i, ..] in the order of i: the same bits in every run.
//
// The places of the indices are sorted, equal ones in their order. Where an index is first, threads add all of its
// updates to their elements of the slice, one after the other. No atomics on floats; updates are read once, and what
// they are added to is read and written once.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/framework/divider.h"
#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/framework/value_fault.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/backends/cuda/sorting/ordered_places.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // loads of a thread that are under way

template <typename T>
using Sum = std::conditional_t<std::is_integral_v<T>,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>, T>;

// Indices as keys; `size`, behind all others, for those that are outside.
template <typename Index>
__global__ void __launch_bounds__(kThreads)
    MakeKeys(const Index* indices, int32_t* keys, int64_t count, int32_t size, ValueCheck check) {
  for (int64_t i = GlobalThread(); i < count; i += GlobalThreads()) {
    const auto index = static_cast<int64_t>(indices[i]);
    const bool is_inside = check.IsInside(index);
    if (!is_inside) check.Report(i, index);
    keys[i] = is_inside ? static_cast<int32_t>(index) : size;
  }
}

struct Segments {
  const int32_t* keys;  // sorted
  const int64_t* places;
  int64_t count, size, inner;  // inner in vectors
  int64_t total;
  Divider by_inner, by_count;
};

// A thread has kWidth elements of a slice, for one position of the sorted keys.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AddSegments(Segments s, const Vector<T, kWidth>* updates, Vector<T, kWidth>* z) {
  for (int64_t n = GlobalThread(); n < s.total; n += GlobalThreads()) {
    int64_t k, position;
    const int64_t row = s.by_inner.Divide(n, &k);
    const int64_t o = s.by_count.Divide(row, &position);
    const int32_t key = s.keys[position];
    if (key == s.size || (position > 0 && s.keys[position - 1] == key)) continue;
    Vector<T, kWidth>* const place = z + (o * s.size + key) * s.inner + k;
    const Vector<T, kWidth>* const of_o = updates + o * s.count * s.inner + k;
    Vector<T, kWidth> sum = *place;
    for (bool is_mine = true; is_mine;) {
      Vector<T, kWidth> next[kTogether];
      int found = 0;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        is_mine = is_mine && position + i < s.count && s.keys[position + i] == key;
        if (!is_mine) continue;
        next[i] = of_o[s.places[position + i] * s.inner];
        ++found;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (i >= found) continue;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
          sum.lane[lane] = static_cast<T>(static_cast<Sum<T>>(sum.lane[lane]) +
                                          static_cast<Sum<T>>(next[i].lane[lane]));
        }
      }
      position += kTogether;
    }
    *place = sum;
  }
}

struct Scratch {
  explicit Scratch(int64_t count) : keys(Aligned(count * 4)), places(Aligned(count * 8)) {}
  int64_t keys, places;  // bytes
};

size_t ScratchBytes(const KernelCall& call) {
  QueueOf(call);  // makes the device current, which CUB asks for its sizes
  const int64_t count = call.inputs[1].NumElements();
  const Scratch parts(count);
  return static_cast<size_t>(2 * parts.keys + parts.places) + OrderPlacesBytes(count);
}

bool Supports(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  return z.dims[call.attrs<AxisAttributes>().axis] < INT32_MAX;
}

template <typename T, int kWidth>
void LaunchAdd(const KernelCall& call, Segments s) {
  s.inner /= kWidth;
  s.total = call.inputs[0].NumElements() / kWidth;
  s.by_inner = Divider(s.inner, s.total);
  s.by_count = Divider(s.count, s.total);
  const Queue queue = QueueOf(call);
  Launch(AddSegments<T, kWidth>, queue.Blocks(s.total, kThreads), kThreads, 0, queue.stream, s,
         call.inputs[0].as<const Vector<T, kWidth>>(), call.outputs[0].as<Vector<T, kWidth>>());
}

template <typename T>
void RunScatterAdd(const KernelCall& call) {
  const TensorRef& updates = call.inputs[0];
  const TensorRef& indices = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  const AxisSplit split(z, call.attrs<AxisAttributes>().axis);
  const int64_t count = indices.NumElements();
  if (count == 0 || split.outer * split.inner == 0) return;
  const Scratch parts(count);
  auto* const memory = static_cast<std::byte*>(call.scratch);
  auto* const keys = reinterpret_cast<int32_t*>(memory);
  auto* const sorted = reinterpret_cast<int32_t*>(memory + parts.keys);
  auto* const places = reinterpret_cast<int64_t*>(memory + 2 * parts.keys);
  const Queue queue = QueueOf(call);
  VisitIndexType(indices.dtype, [&](auto type) {
    using Index = decltype(type);
    Launch(MakeKeys<Index>, queue.Blocks(count, kThreads), kThreads, 0, queue.stream,
           indices.as<const Index>(), keys, count, static_cast<int32_t>(split.size),
           ValueCheckOf(call, split.size));
  });
  OrderPlaces(keys, count, static_cast<int32_t>(split.size), sorted, places,
              memory + 2 * parts.keys + parts.places, queue.stream);
  const Segments segments{sorted,      places, count,         split.size,
                          split.inner, 0,      Divider(1, 1), Divider(1, 1)};
  constexpr int kWidth = 16 / static_cast<int>(sizeof(T));
  const uintptr_t both =
      reinterpret_cast<uintptr_t>(updates.data) | reinterpret_cast<uintptr_t>(z.data);
  if (split.inner % kWidth == 0 && both % 16 == 0) return LaunchAdd<T, kWidth>(call, segments);
  LaunchAdd<T, 1>(call, segments);
}

const bool registered = [] {
  AddKernel(OpCode::kScatterAdd, DType::kFloat32, &RunScatterAdd<float>, false, &ScratchBytes,
            &Supports);
  AddKernel(OpCode::kScatterAdd, DType::kFloat64, &RunScatterAdd<double>, false, &ScratchBytes,
            &Supports);
  AddKernel(OpCode::kScatterAdd, DType::kInt32, &RunScatterAdd<int32_t>, false, &ScratchBytes,
            &Supports);
  AddKernel(OpCode::kScatterAdd, DType::kInt64, &RunScatterAdd<int64_t>, false, &ScratchBytes,
            &Supports);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
