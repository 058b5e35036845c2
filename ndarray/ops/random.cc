#include "tidepool/ndarray/ops/random.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ops/indexing.h"

namespace tidepool {
namespace {

void CheckType(OpCode op, DType dtype, const char* expected) {
  RefuseWhileCapturing(Info(op).name, "its random numbers would be the same in each replay");
  if (Contains(Info(op).types, dtype)) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", Info(op).name, "]: type ", DTypeName(dtype), ", expected ", expected));
}

}  // namespace

NDArray RandomBernoulli(const Shape& shape, double probability, uint64_t seed, uint64_t stream,
                        DType dtype, Place place) {
  CheckType(OpCode::kRandomBernoulli, dtype, "bool, u8 or a float type");
  if (!(probability >= 0 && probability <= 1)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [random_bernoulli]: probability ", probability, ", expected 0 to 1"));
  }
  NDArray z(shape, dtype, place);
  const BernoulliAttributes attributes{seed, stream, probability};
  Dispatch(OpCode::kRandomBernoulli, {}, {&z}, &attributes);
  return z;
}

NDArray RandomIntegers(const Shape& shape, int64_t low, int64_t high, uint64_t seed,
                       uint64_t stream, DType dtype, Place place) {
  CheckType(OpCode::kRandomIntegers, dtype, "i32 or i64");
  const bool fits = dtype == DType::kInt64 || (low >= INT32_MIN && high <= int64_t{INT32_MAX} + 1);
  if (low >= high || !fits) {
    ThrowInvalidArgument(absl::StrCat("Op [random_integers]: [", low, ", ", high, ") of ",
                                      DTypeName(dtype),
                                      ", expected at least one number, all of the type"));
  }
  NDArray z(shape, dtype, place);
  const RandomIntegersAttributes attributes{seed, stream, low, high};
  Dispatch(OpCode::kRandomIntegers, {}, {&z}, &attributes);
  return z;
}

NDArray RandomPermutation(int64_t count, uint64_t seed, uint64_t stream, DType dtype, Place place) {
  CheckType(OpCode::kRandomPermutation, dtype, "i32 or i64");
  if (count < 0 || (dtype == DType::kInt32 && count > int64_t{INT32_MAX} + 1)) {
    ThrowInvalidArgument(absl::StrCat("Op [random_permutation]: ", count, " numbers of ",
                                      DTypeName(dtype), ", expected 0 to what the type holds"));
  }
  NDArray z({count}, dtype, place);
  const PermutationAttributes attributes{seed, stream};
  Dispatch(OpCode::kRandomPermutation, {}, {&z}, &attributes);
  return z;
}

NDArray Shuffle(const NDArray& x, uint64_t seed, uint64_t stream, int axis) {
  CheckOperands(OpCode::kGather, {&x});
  axis = NormalizeAxis("shuffle", axis, x.rank());
  if (x.NumElements() == 0) return x.Dup();
  return Gather(x, RandomPermutation(x.dim(axis), seed, stream), axis);
}

}  // namespace tidepool
