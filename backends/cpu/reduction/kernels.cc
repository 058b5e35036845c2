// Reductions of every type: which loops, and what becomes of their partials.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "tidepool/backends/cpu/reduction/reduce_loops.h"
#include "tidepool/backends/cpu/reduction/reduce_plan.h"
#include "tidepool/backends/cpu/reduction/reduce_walk.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool::cpu {
namespace {

constexpr size_t kAlign = 64;
size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// The type whose loops reduce elements of `dtype`: of the same bits, or one that holds its values, to which they are
// copied. Integers of 16 bits and u32 are too rare for loops of their own.
DType LoopTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt16:
    case DType::kUInt16:
      return DType::kInt32;
    case DType::kUInt32:
    case DType::kUInt64:
      return DType::kInt64;
    default:
      return dtype;
  }
}
bool IsWidened(DType dtype) { return DTypeBytes(LoopTypeOf(dtype)) != DTypeBytes(dtype); }

ElementKind ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ElementKind::kF32;
    case DType::kFloat64:
      return ElementKind::kF64;
    case DType::kFloat16:
      return ElementKind::kF16;
    case DType::kBFloat16:
      return ElementKind::kBF16;
    case DType::kInt8:
      return ElementKind::kI8;
    case DType::kInt32:
      return ElementKind::kI32;
    case DType::kInt64:
      return ElementKind::kI64;
    default:
      return ElementKind::kU8;  // bool is 0 or 1
  }
}

// What the elements of a type become: 16-bit floats are floats.
template <typename T>
using Loaded = std::conditional_t<kIs16BitFloat<T>, float,
                                  std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;

double Total(const DoubleSum& sum) {
  const double total = sum.high + sum.low;
  return std::isfinite(total) ? total : sum.high;  // low of an infinite sum is NaN
}

// Keeps the sign of a zero, and infinities, of which low becomes NaN.
double ProductOf(const DoubleSum& product) {
  return std::isfinite(product.low) && product.low != 0 ? product.high + product.low : product.high;
}
double ProductOf(double product) { return product; }
int64_t ProductOf(int64_t product) { return product; }

// Of one element type.
template <typename T>
struct Finishing {
  static constexpr bool kSumsExactly = !kIsFloat<T>;
  // As integers they would wrap.
  static constexpr bool kMeanOfDoubles = std::is_same_v<T, int64_t>;
  using Sum = std::conditional_t<kSumsExactly, int64_t, DoubleSum>;
  using Real = std::conditional_t<kIsFloat<T>, T, double>;

  static double SumAsReal(const void* partial) {
    if constexpr (kSumsExactly && !kMeanOfDoubles) {
      return static_cast<double>(*static_cast<const int64_t*>(partial));
    } else {
      return Total(*static_cast<const DoubleSum*>(partial));
    }
  }

  template <typename Z, typename Partial, typename Value>
  static void Each(const void* partials, int64_t count, void* z, int64_t stride, Value value) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<Z*>(z)[i * stride] =
          ConvertElement<Z>(value(static_cast<const Partial*>(partials)[i], i));
    }
  }
};

struct Steps {
  ReduceKind first;  // whose partials are finished, or give the stats of `second`
  bool two_passes = false;
  ReduceKind second = ReduceKind::kSum;
};

Steps StepsOf(OpCode op, DType dtype) {
  switch (op) {
    case OpCode::kMean:
      return {dtype == DType::kInt64 ? ReduceKind::kWideSum : ReduceKind::kSum};
    case OpCode::kVariance:
      return {ReduceKind::kWideSum, true, ReduceKind::kDeviations};
    case OpCode::kLogSumExp:
      return {ReduceKind::kMax, true, ReduceKind::kExpSum};
    case OpCode::kNorm1:
      return {ReduceKind::kAbsSum};
    case OpCode::kNorm2:
      return {ReduceKind::kSquareSum};
    case OpCode::kNormInf:
      return {ReduceKind::kAbsMax};
    case OpCode::kProd:
      return {ReduceKind::kProduct};
    case OpCode::kMax:
      return {ReduceKind::kMax};
    case OpCode::kMin:
      return {ReduceKind::kMin};
    case OpCode::kAny:
      return {ReduceKind::kAny};
    case OpCode::kAll:
      return {ReduceKind::kAll};
    case OpCode::kArgMax:
      return {ReduceKind::kArgMax};
    case OpCode::kArgMin:
      return {ReduceKind::kArgMin};
    default:
      return {ReduceKind::kSum};
  }
}

int64_t StatBytes(const Steps& steps, DType dtype) {
  if (!steps.two_passes) return 0;
  return steps.second == ReduceKind::kDeviations || dtype == DType::kFloat64 ? 8 : 4;
}

void SetDenseStrides(const TensorRef& x, int64_t* strides) {
  int64_t stride = 1;
  for (int i = x.rank - 1; i >= 0; --i) strides[i] = stride, stride *= x.dims[i];
}

// Scratch: a dense copy of x where its strides or its type need one, stats, partials.
struct Layout {
  explicit Layout(const KernelCall& call)
      : dtype(LoopTypeOf(call.inputs[0].dtype)),
        steps(StepsOf(call.op, dtype)),
        element(ElementOf(dtype)) {
    TensorRef x = call.inputs[0];
    int64_t dense[kMaxRank];
    copies = IsWidened(x.dtype);
    if (copies) {
      SetDenseStrides(x, dense);
      x.strides = dense;
    }
    copies =
        !MakeReducePlan(x, call.outputs[0], call.attrs<ReduceAttributes>().axes, &plan) || copies;
    loops = FindReduceLoops(steps.first, element);
    partials = ReduceScratchBytes(plan, *loops);
    if (steps.two_passes) {
      second = FindReduceLoops(steps.second, element);
      partials = std::max(partials, ReduceScratchBytes(plan, *second));
    }
    stat_bytes = StatBytes(steps, dtype);
    stats_at = copies ? Aligned(static_cast<size_t>(x.NumElements()) * DTypeBytes(dtype)) : 0;
    partials_at =
        stats_at + Aligned(static_cast<size_t>(call.outputs[0].NumElements() * stat_bytes));
  }
  DType dtype;  // of the loops
  Steps steps;
  ElementKind element;
  ReducePlan plan;
  const ReduceLoops* loops;
  const ReduceLoops* second = nullptr;
  bool copies;
  int64_t stat_bytes;
  size_t stats_at, partials_at, partials;
};

size_t ScratchBytes(const KernelCall& call) {
  const Layout layout(call);
  return layout.partials_at + layout.partials;
}

void CopyDense(const TensorRef& x, void* out) {
  int64_t dense[kMaxRank], strides[2][kMaxRank];
  SetDenseStrides(x, dense);
  BroadcastStrides(x.rank, x.dims, x.strides, x.rank, strides[0]);
  BroadcastStrides(x.rank, x.dims, dense, x.rank, strides[1]);
  const DType loops = IsWidened(x.dtype) ? LoopTypeOf(x.dtype) : x.dtype;
  const ConvertRun copy = ConverterOf(x.dtype, loops);
  const auto width = static_cast<int64_t>(DTypeBytes(x.dtype)),
             z_width = static_cast<int64_t>(DTypeBytes(loops));
  ForEachRun<2>(x.rank, x.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* step) {
                  copy(x.as<std::byte>() + offset[0] * width, step[0],
                       static_cast<std::byte*>(out) + offset[1] * z_width, step[1], count);
                });
}

template <typename T>
void Finish(const KernelCall& call, int64_t reduced, const void* partials, const void* stats,
            int64_t count, int64_t z_offset, int64_t stride) {
  using F = Finishing<T>;
  using Real = typename F::Real;
  using Exact = std::conditional_t<F::kSumsExactly, int64_t, T>;
  const TensorRef& ref = call.outputs[0];
  void* z = ref.as<std::byte>() + z_offset * static_cast<int64_t>(DTypeBytes(ref.dtype));
  const double n = static_cast<double>(reduced);
  auto sums = [&](auto value) {
    F::template Each<Real, DoubleSum>(partials, count, z, stride, value);
  };
  switch (call.op) {
    case OpCode::kMean:
      F::template Each<Real, std::conditional_t<F::kMeanOfDoubles, DoubleSum, typename F::Sum>>(
          partials, count, z, stride,
          [&](const auto& partial, int64_t) { return F::SumAsReal(&partial) / n; });
      return;
    case OpCode::kVariance: {
      const int64_t ddof = call.attrs<ReduceAttributes>().ddof;
      const double divisor = static_cast<double>(std::max<int64_t>(0, reduced - ddof));
      return sums([&](const DoubleSum& sum, int64_t) { return Total(sum) / divisor; });
    }
    case OpCode::kNorm1:
      return sums([](const DoubleSum& sum, int64_t) { return Total(sum); });
    case OpCode::kNorm2:
      return sums([](const DoubleSum& sum, int64_t) { return std::sqrt(Total(sum)); });
    case OpCode::kNormInf:
      using Size = std::conditional_t<kIsFloat<T>, Loaded<T>, double>;
      return F::template Each<Real, Size>(partials, count, z, stride,
                                          [](Size size, int64_t) { return size; });
    case OpCode::kLogSumExp:
      if constexpr (kIsFloat<T>) {
        const auto* largest = static_cast<const Loaded<T>*>(stats);
        sums([&](const DoubleSum& sum, int64_t i) {
          return std::isfinite(largest[i]) ? largest[i] + std::log(Total(sum))
                                           : static_cast<double>(largest[i]);
        });
      }
      return;
    case OpCode::kProd:
      using Product =
          std::conditional_t<F::kSumsExactly, int64_t,
                             std::conditional_t<std::is_same_v<T, double>, DoubleSum, double>>;
      return F::template Each<Exact, Product>(
          partials, count, z, stride,
          [](const Product& product, int64_t) { return ProductOf(product); });
    case OpCode::kMax:
    case OpCode::kMin: {
      const auto same = [](Loaded<T> value, int64_t) { return value; };
      if constexpr (std::is_same_v<T, int32_t>) {  // also what was copied to it
        if (DTypeBytes(ref.dtype) == 2)
          return F::template Each<int16_t, Loaded<T>>(partials, count, z, stride, same);
      } else if constexpr (std::is_same_v<T, int64_t>) {
        if (DTypeBytes(ref.dtype) == 4)
          return F::template Each<int32_t, Loaded<T>>(partials, count, z, stride, same);
      }
      return F::template Each<T, Loaded<T>>(partials, count, z, stride, same);
    }
    case OpCode::kAny:
    case OpCode::kAll:
      return F::template Each<bool, uint8_t>(partials, count, z, stride,
                                             [](uint8_t flag, int64_t) { return flag; });
    case OpCode::kArgMax:
    case OpCode::kArgMin:
      return F::template Each<int64_t, Placed<Loaded<T>>>(
          partials, count, z, stride, [](const auto& placed, int64_t) { return placed.index; });
    default:
      if constexpr (F::kSumsExactly) {
        F::template Each<int64_t, int64_t>(partials, count, z, stride,
                                           [](int64_t sum, int64_t) { return sum; });
      } else {
        F::template Each<T, DoubleSum>(partials, count, z, stride,
                                       [](const DoubleSum& sum, int64_t) { return Total(sum); });
      }
  }
}

template <typename T>
void Reduce(const KernelCall& call) {
  const Layout layout(call);
  const TensorRef& input = call.inputs[0];
  auto* scratch = static_cast<std::byte*>(call.scratch);
  const void* x = input.data;
  if (layout.copies) {
    CopyDense(input, scratch);
    x = scratch;
  }
  void* partials = scratch + layout.partials_at;
  std::byte* stats = scratch + layout.stats_at;
  const int64_t reduced = input.NumElements() / call.outputs[0].NumElements();
  auto finish = [&](const void* done, int64_t begin, int64_t count, int64_t offset,
                    int64_t stride) {
    Finish<T>(call, reduced, done, stats + begin * layout.stat_bytes, count, offset, stride);
  };
  if (!layout.steps.two_passes) {
    return ReduceOver(layout.plan, *layout.loops, x, sizeof(T), nullptr, 0, partials, call.threads,
                      finish);
  }
  auto keep = [&](const void* done, int64_t begin, int64_t count, int64_t, int64_t) {
    if (layout.steps.second == ReduceKind::kDeviations) {
      for (int64_t i = 0; i < count; ++i) {
        reinterpret_cast<double*>(stats)[begin + i] =
            Total(static_cast<const DoubleSum*>(done)[i]) / static_cast<double>(reduced);
      }
    } else {
      std::copy_n(static_cast<const Loaded<T>*>(done), count,
                  reinterpret_cast<Loaded<T>*>(stats) + begin);
    }
  };
  ReduceOver(layout.plan, *layout.loops, x, sizeof(T), nullptr, 0, partials, call.threads, keep);
  ReduceOver(layout.plan, *layout.second, x, sizeof(T), stats, layout.stat_bytes, partials,
             call.threads, finish);
}

// Whether integers of the same bits have the same result, with a sign or without.
bool IsOfBits(OpCode op) {
  return op == OpCode::kSum || op == OpCode::kProd || op == OpCode::kAny || op == OpCode::kAll;
}

const bool registered = [] {
  static constexpr OpCode kOps[] = {
      OpCode::kSum,   OpCode::kProd,    OpCode::kMean,      OpCode::kVariance, OpCode::kNorm1,
      OpCode::kNorm2, OpCode::kNormInf, OpCode::kLogSumExp, OpCode::kMax,      OpCode::kMin,
      OpCode::kAny,   OpCode::kAll,     OpCode::kArgMax,    OpCode::kArgMin};
  for (const OpCode op : kOps) {
    for (int i = 0; i < kDTypes; ++i) {
      const DType dtype = static_cast<DType>(i);
      if (!Contains(Info(op).types, dtype) || (dtype == DType::kUInt64 && !IsOfBits(op))) continue;
      VisitDType(LoopTypeOf(dtype), [&](auto t) {
        KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "cpu", 10, &Reduce<decltype(t)>,
                                      &ScratchBytes, nullptr, true});
      });
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::cpu
