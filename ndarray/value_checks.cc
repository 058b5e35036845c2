#include "tidepool/ndarray/value_checks.h"

#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/value_faults.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool {
namespace {

template <typename Index>
void CheckIndicesOfType(const char* op, const NDArray& indices, int64_t size) {
  int64_t strides[1][kMaxRank];
  BroadcastStrides(indices.rank(), indices.shape().dims(), indices.strides(), indices.rank(),
                   strides[0]);
  const auto* values = reinterpret_cast<const Index*>(indices.raw_data());
  int64_t before = 0;
  ForEachRun<1>(indices.rank(), indices.shape().dims(), strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  const Index* run = values + offset[0];
                  bool inside = true;
                  for (int64_t i = 0; i < count; ++i) {
                    // As unsigned a negative one is large.
                    inside &= static_cast<uint64_t>(int64_t{run[i * stride[0]]}) <
                              static_cast<uint64_t>(size);
                  }
                  for (int64_t i = 0; !inside && i < count; ++i) {
                    const int64_t index = run[i * stride[0]];
                    if (index >= 0 && index < size) continue;
                    ThrowInvalidArgument(
                        absl::StrCat("Op [", op, "]: index ", index, " at position ", before + i,
                                     size == 0 ? ", but there is nothing to choose from"
                                               : absl::StrCat(", expected 0 to ", size - 1)));
                  }
                  before += count;
                });
}

// Whether an integer array has an element that `is_bad`.
template <typename T, typename Predicate>
bool AnyElement(const NDArray& y, Predicate is_bad) {
  int64_t strides[1][kMaxRank];
  BroadcastStrides(y.rank(), y.shape().dims(), y.strides(), y.rank(), strides[0]);
  const auto* values = reinterpret_cast<const T*>(y.raw_data());
  bool any = false;
  ForEachRun<1>(y.rank(), y.shape().dims(), strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  for (int64_t i = 0; i < count; ++i)
                    any |= is_bad(values[offset[0] + i * stride[0]]);
                });
  return any;
}

}  // namespace

bool IsCheckedByKernels(const NDArray& array) { return ChecksValues(array.device()); }

// Where kernels are off nobody has computed the values.
void CheckIndexValues(OpCode op, const NDArray& indices, int64_t size) {
  if (internal::KernelsAreOff()) return;
  if (indices.device() != Host()) return CheckIndexValues(op, indices.To(Host()), size);
  const char* const name = Info(op).name;
  if (indices.dtype() == DType::kInt32) return CheckIndicesOfType<int32_t>(name, indices, size);
  CheckIndicesOfType<int64_t>(name, indices, size);
}

void CheckIntegerOperand(OpCode op, const NDArray& y) {
  if (IsFloating(y.dtype()) || internal::KernelsAreOff()) return;
  if (y.device() != Host()) return CheckIntegerOperand(op, y.To(Host()));
  VisitDType(y.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (!kIsFloat<T> && !std::is_same_v<T, bool>) {
      if (op == OpCode::kPower) {
        if (!AnyElement<T>(y, [](T value) { return value < 0; })) return;
        ThrowInvalidArgument(absl::StrCat("Op [power]: Y of shape ", y.shape().ToString(),
                                          " has a negative element; integers have no negative "
                                          "powers, Cast to a float type"));
      }
      if (!AnyElement<T>(y, [](T value) { return value == 0; })) return;
      ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: Y of shape ",
                                        y.shape().ToString(),
                                        " has a zero; integer division by zero is not defined"));
    }
  });
}

bool ChecksIntegerOperand(OpCode op) {
  return op == OpCode::kDivide || op == OpCode::kRemainder || op == OpCode::kPower ||
         op == OpCode::kFMod || op == OpCode::kFloorDivide;
}

void CheckValuesOf(OpCode op, absl::Span<const NDArray* const> inputs,
                   absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  auto axis = [&] { return static_cast<const AxisAttributes*>(attributes.data())->axis; };
  if (op == OpCode::kGather) {
    CheckIndexValues(op, *inputs[1], inputs[0]->dim(axis()));
  } else if (op == OpCode::kScatterAdd) {
    CheckIndexValues(op, *inputs[1], outputs[0]->dim(axis()));
  } else if (op == OpCode::kOneHot) {
    CheckIndexValues(op, *inputs[0], outputs[0]->dim(outputs[0]->rank() - 1));
  } else if (ChecksIntegerOperand(op)) {
    CheckIntegerOperand(op, *inputs[1]);
  }
}

}  // namespace tidepool
