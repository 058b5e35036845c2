// One random call of an operator: operands' shapes and values, attributes. No memory layout, which
// guarded_array.h adds.
#ifndef TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_
#define TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

// Values row-major: of float types as numbers that the type holds, of integers and bool in `ints`.
struct OperandValues {
  Shape shape;
  DType dtype = DType::kFloat32;
  bool present = true;
  std::vector<double> reals;
  std::vector<int64_t> ints;

  // Element `i` from and to memory of the type.
  void Store(int64_t i, void* out) const;
  void Append(const void* in);
};

// An attributes struct of any type.
class CaseAttributes {
 public:
  template <typename Attributes>
  CaseAttributes& operator=(const Attributes& attributes) {
    value_ = std::make_shared<Attributes>(attributes);
    type_ = AttributesType::Of<Attributes>();
    return *this;
  }
  AttributesRef get() const { return {value_.get(), type_}; }  // null without attributes

 private:
  std::shared_ptr<const void> value_;
  AttributesType type_;
};

// How close a result is to what is expected: see tolerances.inc.
enum class Comparison { kBits, kValue, kClose };

struct Tolerance {
  Comparison comparison = Comparison::kBits;
  double relative = 0;
  double absolute = 0;
};

struct OpCase {
  OpCode op;
  DType dtype;  // the kernel's
  std::vector<OperandValues> inputs;
  std::vector<OperandValues> outputs;  // values before the call: read by updates and accumulation
  CaseAttributes attributes;
  double inner = 1;  // of the tolerance

  template <typename Attributes>
  const Attributes& attrs() const {
    return *static_cast<const Attributes*>(attributes.get().data());
  }
  std::string ToString() const;  // operator, type, shapes
};

// Sizes are 0, 1, small, prime or around multiples of 4, 8 and 16, a few large enough for several
// threads. Values are about 1, in some cases with NaN, infinities, -0.0 and denormals where the
// operator defines what becomes of them; all are rounded to the operands' types in the end. The same
// generator state gives the same case. Every operator of the list has cases: those of a group of
// the list are made in cases_<group>.cc.
OpCase MakeOpCase(OpCode op, DType dtype, std::mt19937_64& random);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_OP_CASE_H_
