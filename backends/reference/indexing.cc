// Elements by index, reversed, in triangles, added up along an axis: plain loops over dense operands.
// Moves go by the width of elements.
#include <algorithm>
#include <type_traits>

#include "tidepool/backends/reference/wide.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/axis_split.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// visit(outer, i, inner, index) for each element of the picked or placed slices.
template <typename Visit>
void ForEachIndexed(const TensorRef& indices, const AxisSplit& split, Visit visit) {
  const int64_t count = indices.NumElements();
  VisitIndexType(indices.dtype, [&](auto type) {
    const auto* index = indices.as<decltype(type)>();
    for (int64_t o = 0; o < split.outer; ++o) {
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t k = 0; k < split.inner; ++k) {
          visit((o * split.size + index[i]) * split.inner + k, (o * count + i) * split.inner + k);
        }
      }
    }
  });
}

template <typename Bits>
void Gather(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  ForEachIndexed(call.inputs[1], AxisSplit(x, call.attrs<AxisAttributes>().axis),
                 [&](int64_t from, int64_t to) {
                   call.outputs[0].as<Bits>()[to] = x.as<Bits>()[from];
                 });
}

// Rounded after each addition: the sums of others may be no closer.
template <typename T>
void ScatterAdd(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  using Sum = std::conditional_t<kIsFloat<T>, T, std::make_unsigned_t<std::conditional_t<kIsFloat<T>, int, T>>>;
  ForEachIndexed(call.inputs[1], AxisSplit(z, call.attrs<AxisAttributes>().axis),
                 [&](int64_t to, int64_t from) {
                   T& sum = z.as<T>()[to];
                   const T update = call.inputs[0].as<T>()[from];
                   sum = static_cast<T>(static_cast<Sum>(sum) + static_cast<Sum>(update));
                 });
}

template <typename Bits>
void OneHot(const KernelCall& call) {
  const auto& a = call.attrs<OneHotAttributes>();
  const TensorRef& indices = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  Bits on, off;
  StoreNumber(a.on, z.dtype, &on);
  StoreNumber(a.off, z.dtype, &off);
  const int64_t depth = z.dims[z.rank - 1], count = indices.NumElements();
  std::fill_n(z.as<Bits>(), count * depth, off);
  VisitIndexType(indices.dtype, [&](auto type) {
    const auto* index = indices.as<decltype(type)>();
    for (int64_t i = 0; i < count; ++i) z.as<Bits>()[i * depth + index[i]] = on;
  });
}

template <typename Bits>
void Flip(const KernelCall& call) {
  const uint32_t axes = call.attrs<FlipAttributes>().axes;
  const TensorRef& x = call.inputs[0];
  const int64_t count = x.NumElements();
  for (int64_t n = 0; n < count; ++n) {
    int64_t rest = n, from = 0, stride = 1;
    for (int axis = x.rank - 1; axis >= 0; --axis) {
      const int64_t index = rest % x.dims[axis];
      rest /= x.dims[axis];
      from += ((axes >> axis & 1) != 0 ? x.dims[axis] - 1 - index : index) * stride;
      stride *= x.dims[axis];
    }
    call.outputs[0].as<Bits>()[n] = x.as<Bits>()[from];
  }
}

template <typename Bits>
void Triangle(const KernelCall& call) {
  const auto& a = call.attrs<TriangleAttributes>();
  const TensorRef& x = call.inputs[0];
  const int64_t rows = x.dims[x.rank - 2], columns = x.dims[x.rank - 1];
  const int64_t count = x.NumElements();
  for (int64_t n = 0; n < count; ++n) {
    const int64_t row = n / columns % rows, column = n % columns;
    const bool stays = a.upper ? column - row >= a.diagonal : column - row <= a.diagonal;
    call.outputs[0].as<Bits>()[n] = stays ? x.as<Bits>()[n] : Bits{0};
  }
}

template <typename T>
void CumSum(const KernelCall& call) {
  using Z = std::conditional_t<kIsFloat<T>, T, int64_t>;
  using Sum = std::conditional_t<kIsFloat<T>, Wide<T>, uint64_t>;
  const auto& a = call.attrs<CumSumAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  for (int64_t o = 0; o < split.outer; ++o) {
    for (int64_t k = 0; k < split.inner; ++k) {
      Sum sum = 0;
      for (int64_t i = 0; i < split.size; ++i) {
        const int64_t place = a.reverse ? split.size - 1 - i : i;
        const int64_t at = (o * split.size + place) * split.inner + k;
        const Sum before = sum;
        const T x = call.inputs[0].as<T>()[at];  // before it is written over
        if constexpr (kIsFloat<T>) {
          sum += static_cast<Sum>(x);
        } else {
          sum += static_cast<Sum>(static_cast<int64_t>(x));
        }
        call.outputs[0].as<Z>()[at] = static_cast<Z>(a.exclusive ? before : sum);
      }
    }
  }
}

void Add(OpCode op, DType dtype, void (*run)(const KernelCall&)) {
  KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "reference", 0, run});
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    VisitBits(dtype, [&](auto bits) {
      Add(OpCode::kGather, dtype, &Gather<decltype(bits)>);
      Add(OpCode::kOneHot, dtype, &OneHot<decltype(bits)>);
      Add(OpCode::kFlip, dtype, &Flip<decltype(bits)>);
      Add(OpCode::kTriangle, dtype, &Triangle<decltype(bits)>);
    });
    VisitDType(dtype, [&](auto t) { Add(OpCode::kCumSum, dtype, &CumSum<decltype(t)>); });
  }
  Add(OpCode::kScatterAdd, DType::kFloat32, &ScatterAdd<float>);
  Add(OpCode::kScatterAdd, DType::kFloat64, &ScatterAdd<double>);
  Add(OpCode::kScatterAdd, DType::kInt32, &ScatterAdd<int32_t>);
  Add(OpCode::kScatterAdd, DType::kInt64, &ScatterAdd<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool
