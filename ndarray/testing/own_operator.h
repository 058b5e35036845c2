// The contract of an operator that a program has added (ndarray/kernel/op_code.h): how random calls of it are made, and how
// close the results of every provider are to those of its host kernel of provider "reference".
//
//   const bool cases = AddOpCases(
//       Hypot(),
//       [](CaseValues& values, OpCase& c) {
//         const Shape shape = values.AnyShape(0, 4);
//         c.inputs = {values.Floats(shape), values.Floats(shape)};
//         c.outputs = {values.Floats(shape)};
//       },
//       {Comparison::kClose, 2.5e-7, 0});
//   const bool contract = RegisterOpContract({.provider = "mine", .only = {"hypot f32"}});
//
// in one file, in this order: the contract's tests are those of the operators that have cases by then.
#ifndef TIDEPOOL_NDARRAY_TESTING_OWN_OPERATOR_H_
#define TIDEPOOL_NDARRAY_TESTING_OWN_OPERATOR_H_

#include "tidepool/ndarray/testing/case_values.h"
#include "tidepool/ndarray/testing/op_case.h"
#include "tidepool/ndarray/testing/op_case_groups.h"

namespace tidepool {

// `tolerance`: of f32 results, as in tolerances.inc. Always true. Throws kInvalidArgument for operators of the list and
// for those that have cases already. Before the tests begin.
bool AddOpCases(OpCode op, CaseMaker make, Tolerance tolerance);
// Throws kInvalidArgument without cases.
Tolerance ToleranceOfOwn(OpCode op);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_OWN_OPERATOR_H_
