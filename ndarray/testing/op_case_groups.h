// Who makes the cases of an operator: one file per group of the operator list.
#ifndef TIDEPOOL_NDARRAY_TESTING_OP_CASE_GROUPS_H_
#define TIDEPOOL_NDARRAY_TESTING_OP_CASE_GROUPS_H_

#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {

class CaseValues;

// Fills in operands and attributes of a case whose op and dtype are set.
using CaseMaker = void (*)(CaseValues& values, OpCase& c);

// Null for operators of other groups.
CaseMaker FindElementwiseCases(OpCode op);
CaseMaker FindReductionCases(OpCode op);
CaseMaker FindIndexingCases(OpCode op);
CaseMaker FindRandomCases(OpCode op);
CaseMaker FindNnCases(OpCode op);  // of the parts below as well
CaseMaker FindLossCases(OpCode op);
CaseMaker FindNormalizationCases(OpCode op);
CaseMaker FindRecurrentCases(OpCode op);
CaseMaker FindAttentionCases(OpCode op);
CaseMaker FindImageCases(OpCode op);
CaseMaker FindOwnCases(OpCode op);  // of those that were added (own_operator.h)

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_OP_CASE_GROUPS_H_
