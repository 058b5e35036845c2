// Sorted lines: values alone, whose equals need not be told apart.
#include "tidepool/backends/cuda/sorting/sort_by_radix.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"

namespace tidepool::cuda {
namespace {

template <typename T>
size_t ScratchBytes(const KernelCall& call) {
  StreamOf(call);  // makes the device current, which CUB asks for its sizes
  const AxisSplit split(call.inputs[0], call.attrs<SortAttributes>().axis);
  return SortLinesBytes<T, false>(split.outer * split.inner, split.size);
}

template <typename T>
void Sort(const KernelCall& call) {
  const auto& a = call.attrs<SortAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  const SortLines<T> lines{split.outer * split.inner,
                           split.size,
                           split.inner,
                           split.size,
                           a.descending,
                           call.inputs[0].as<T>(),
                           call.outputs[0].as<T>(),
                           nullptr};
  QueueSortLines<T, false>(lines, call.scratch, StreamOf(call));
}

const bool registered = [] {
  ForEachType(AllTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kSort, DTypeOf<T>::value, &Sort<T>, false, &ScratchBytes<T>);
  });
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
