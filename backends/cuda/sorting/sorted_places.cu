// Places in sorted order, and the k largest elements with their places.
#include "tidepool/backends/cuda/sorting/sort_by_radix.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"

namespace tidepool::cuda {
namespace {

template <typename T>
size_t BytesOf(const KernelCall& call, int axis) {
  StreamOf(call);  // makes the device current, which CUB asks for its sizes
  const AxisSplit split(call.inputs[0], axis);
  return SortLinesBytes<T, true>(split.outer * split.inner, split.size);
}

template <typename T>
size_t ArgSortBytes(const KernelCall& call) {
  return BytesOf<T>(call, call.attrs<SortAttributes>().axis);
}

template <typename T>
void ArgSort(const KernelCall& call) {
  const auto& a = call.attrs<SortAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  const SortLines<T> lines{split.outer * split.inner,
                           split.size,
                           split.inner,
                           split.size,
                           a.descending,
                           call.inputs[0].as<T>(),
                           nullptr,
                           call.outputs[0].as<int64_t>()};
  QueueSortLines<T, true>(lines, call.scratch, StreamOf(call));
}

template <typename T>
size_t TopKBytes(const KernelCall& call) {
  return BytesOf<T>(call, call.attrs<AxisAttributes>().axis);
}

template <typename T>
void TopK(const KernelCall& call) {
  const int axis = call.attrs<AxisAttributes>().axis;
  const AxisSplit split(call.inputs[0], axis);
  const SortLines<T> lines{split.outer * split.inner,
                           split.size,
                           split.inner,
                           call.outputs[0].dims[axis],
                           true,
                           call.inputs[0].as<T>(),
                           call.outputs[0].as<T>(),
                           call.outputs[1].as<int64_t>()};
  QueueSortLines<T, true>(lines, call.scratch, StreamOf(call));
}

const bool registered = [] {
  ForEachType(AllTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kArgSort, DTypeOf<T>::value, &ArgSort<T>, false, &ArgSortBytes<T>);
    AddKernel(OpCode::kTopK, DTypeOf<T>::value, &TopK<T>, false, &TopKBytes<T>);
  });
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
