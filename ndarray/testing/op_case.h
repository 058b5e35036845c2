// One random call of an operator: operands' shapes and values, attributes. No memory layout, which
// guarded_array.h adds.
#ifndef TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_
#define TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_

#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Values row-major, in the vector of its type.
struct OperandValues {
  Shape shape;
  DType dtype = DType::kFloat32;
  bool present = true;
  std::vector<float> f32;
  std::vector<int64_t> i64;
};

struct OpCase {
  OpCode op;
  DType dtype;  // the kernel's
  std::vector<OperandValues> inputs;
  std::vector<OperandValues> outputs;  // values before the call: read by updates and accumulation
  std::variant<std::monostate, FillAttributes, ScaleShiftAttributes, SumAttributes,
               MatMulAttributes, Conv2dAttributes, Pool2dAttributes, CrossEntropyGradAttributes,
               SgdAttributes, NesterovsAttributes, AdamAttributes, RandomAttributes>
      attributes;
  double inner = 1;  // of tolerances.inc

  const void* attributes_pointer() const;  // null without attributes
  std::string ToString() const;            // operator, shapes
};

// Sizes are 0, 1, small, prime or around multiples of 4, 8 and 16, a few large enough for several
// threads. Values are about 1, in some cases with NaN, infinities, -0.0 and denormals where the
// operator defines what becomes of them. The same generator state gives the same case.
OpCase MakeOpCase(OpCode op, DType dtype, std::mt19937_64& random);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_
