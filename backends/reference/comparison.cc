// Comparisons, logic and choice. Nothing is equal to NaN, less or greater.
#include "tidepool/backends/reference/element_words.h"

namespace tidepool::reference {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

struct WhereKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    ForEachElement<T, bool, T, T>(call, [](bool condition, T x, T y) { return condition ? x : y; });
  }
};

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddRelation<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddPredicate<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#undef TIDEPOOL_OPERATOR
  AddPredicate<LogicalNotFormula, kBoolean>(OpCode::kLogicalNot);
  return RegisterReference<WhereKernel>(OpCode::kWhere, AllTypes());
}();

}  // namespace
}  // namespace tidepool::reference
