// Comparisons, logic and choice. Nothing is equal to NaN, less or greater.
#include <cmath>
#include <functional>

#include "tidepool/backends/reference/pointwise.h"

namespace tidepool {
namespace {

template <typename Relation>
struct CompareKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, T, T>(call, [](T x, T y) { return Relation()(x, y); });
  }
};

template <typename Operation>
struct LogicalKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, bool, bool>(call, [](bool x, bool y) { return Operation()(x, y); });
  }
};

struct LogicalNotKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, bool>(call, [](bool x) { return !x; });
  }
};

struct IsNanKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, T>(call, [](T x) { return std::isnan(static_cast<double>(x)); });
  }
};

struct IsFiniteKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, T>(call, [](T x) { return std::isfinite(static_cast<double>(x)); });
  }
};

struct IsInfKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<bool, T>(call, [](T x) { return std::isinf(static_cast<double>(x)); });
  }
};

struct WhereKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, bool, T, T>(call, [](bool condition, T x, T y) { return condition ? x : y; });
  }
};

const bool registered[] = {
    RegisterReference<CompareKernel<std::equal_to<>>>(OpCode::kEqual, AllTypes()),
    RegisterReference<CompareKernel<std::not_equal_to<>>>(OpCode::kNotEqual, AllTypes()),
    RegisterReference<CompareKernel<std::less<>>>(OpCode::kLess, AllTypes()),
    RegisterReference<CompareKernel<std::less_equal<>>>(OpCode::kLessEqual, AllTypes()),
    RegisterReference<CompareKernel<std::greater<>>>(OpCode::kGreater, AllTypes()),
    RegisterReference<CompareKernel<std::greater_equal<>>>(OpCode::kGreaterEqual, AllTypes()),
    RegisterReference<LogicalKernel<std::logical_and<>>>(OpCode::kLogicalAnd, TypeList<bool>()),
    RegisterReference<LogicalKernel<std::logical_or<>>>(OpCode::kLogicalOr, TypeList<bool>()),
    RegisterReference<LogicalKernel<std::not_equal_to<>>>(OpCode::kLogicalXor, TypeList<bool>()),
    RegisterReference<LogicalNotKernel>(OpCode::kLogicalNot, TypeList<bool>()),
    RegisterReference<IsNanKernel>(OpCode::kIsNan, FloatTypes()),
    RegisterReference<IsFiniteKernel>(OpCode::kIsFinite, FloatTypes()),
    RegisterReference<IsInfKernel>(OpCode::kIsInf, FloatTypes()),
    RegisterReference<WhereKernel>(OpCode::kWhere, AllTypes()),
};

}  // namespace
}  // namespace tidepool
