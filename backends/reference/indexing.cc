// Elements by index, reversed, in triangles, added up or multiplied along an axis: plain loops over dense operands.
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
  ForEachIndexed(
      call.inputs[1], AxisSplit(x, call.attrs<AxisAttributes>().axis),
      [&](int64_t from, int64_t to) { call.outputs[0].as<Bits>()[to] = x.as<Bits>()[from]; });
}

// Rounded after each addition: the sums of others may be no closer.
template <typename T>
void ScatterAdd(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  using Sum = std::conditional_t<kIsFloat<T>, T,
                                 std::make_unsigned_t<std::conditional_t<kIsFloat<T>, int, T>>>;
  ForEachIndexed(call.inputs[1], AxisSplit(z, call.attrs<AxisAttributes>().axis),
                 [&](int64_t to, int64_t from) {
                   T& sum = z.as<T>()[to];
                   const T update = call.inputs[0].as<T>()[from];
                   sum = static_cast<T>(static_cast<Sum>(sum) + static_cast<Sum>(update));
                 });
}

// Rounded after each step.
template <typename T, typename Reduce>
void ScatterBy(const KernelCall& call, Reduce reduce) {
  const T* updates = call.inputs[0].as<T>();
  const int64_t* places = call.inputs[1].as<int64_t>();
  T* z = call.outputs[0].as<T>();
  const int64_t count = call.inputs[1].NumElements();
  for (int64_t i = 0; i < count; ++i) z[places[i]] = reduce(z[places[i]], updates[i]);
}

template <typename T>
void Scatter(const KernelCall& call) {
  // 16-bit floats are numbers to compute with as float; integers wrap.
  using Number =
      std::conditional_t<kIs16BitFloat<T>, float, std::conditional_t<kIsFloat<T>, T, uint64_t>>;
  switch (call.attrs<ScatterAttributes>().reduction) {
    case ScatterReduction::kNone:
      return ScatterBy<T>(call, [](T, T update) { return update; });
    case ScatterReduction::kAdd:
      return ScatterBy<T>(call, [](T old, T update) {
        return static_cast<T>(static_cast<Number>(old) + static_cast<Number>(update));
      });
    case ScatterReduction::kMultiply:
      return ScatterBy<T>(call, [](T old, T update) {
        return static_cast<T>(static_cast<Number>(old) * static_cast<Number>(update));
      });
    case ScatterReduction::kMin:
      return ScatterBy<T>(
          call, [](T old, T update) { return old != old || old < update ? old : update; });
    case ScatterReduction::kMax:
      return ScatterBy<T>(
          call, [](T old, T update) { return old != old || update < old ? old : update; });
  }
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

// Sums, or products.
template <typename T, bool kProducts>
void Cumulate(const KernelCall& call) {
  using Z = std::conditional_t<kIsFloat<T> || std::is_same_v<T, uint64_t>, T, int64_t>;
  using Total = std::conditional_t<kIsFloat<T>, Wide<T>, uint64_t>;
  const auto& a = call.attrs<CumSumAttributes>();
  const AxisSplit split(call.inputs[0], a.axis);
  for (int64_t o = 0; o < split.outer; ++o) {
    for (int64_t k = 0; k < split.inner; ++k) {
      Total total = kProducts ? 1 : 0;
      for (int64_t i = 0; i < split.size; ++i) {
        const int64_t place = a.reverse ? split.size - 1 - i : i;
        const int64_t at = (o * split.size + place) * split.inner + k;
        const Total before = total;
        const T x = call.inputs[0].as<T>()[at];  // before it is written over
        Total term;
        if constexpr (kIsFloat<T>) {
          term = static_cast<Total>(x);
        } else {
          term = static_cast<Total>(static_cast<int64_t>(x));
        }
        if constexpr (kProducts) {
          total *= term;
        } else {
          total += term;
        }
        call.outputs[0].as<Z>()[at] = static_cast<Z>(a.exclusive ? before : total);
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
    VisitDType(dtype, [&](auto t) {
      Add(OpCode::kCumSum, dtype, &Cumulate<decltype(t), false>);
      Add(OpCode::kCumProd, dtype, &Cumulate<decltype(t), true>);
      Add(OpCode::kScatter, dtype, &Scatter<decltype(t)>);
    });
  }
  Add(OpCode::kScatterAdd, DType::kFloat32, &ScatterAdd<float>);
  Add(OpCode::kScatterAdd, DType::kFloat64, &ScatterAdd<double>);
  Add(OpCode::kScatterAdd, DType::kInt32, &ScatterAdd<int32_t>);
  Add(OpCode::kScatterAdd, DType::kInt64, &ScatterAdd<int64_t>);
  return true;
}();

}  // namespace
}  // namespace tidepool
