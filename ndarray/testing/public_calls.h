// The functions of ndarray/ops with the operands they take, for tests of what all of them do alike:
// refuse a stale operand by name before anything else.
#ifndef TIDEPOOL_NDARRAY_TESTING_PUBLIC_CALLS_H_
#define TIDEPOOL_NDARRAY_TESTING_PUBLIC_CALLS_H_

#include <functional>
#include <vector>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct Operand {
  const char* name;  // as messages use it
  Shape shape;
  DType dtype = DType::kFloat32;
};

struct PublicCall {
  const char* op;  // as messages use it
  std::vector<Operand> operands;
  std::function<void(std::vector<NDArray>&)> run;  // legal with arrays of these shapes, all ones
};

// Of the groups of the operator list that do not stand in dispatch_test.cc.
void AppendElementwiseCalls(std::vector<PublicCall>* calls);  // but for those there
void AppendReductionCalls(std::vector<PublicCall>* calls);
void AppendNnCalls(std::vector<PublicCall>* calls);
void AppendIndexingCalls(std::vector<PublicCall>* calls);
void AppendRandomCalls(std::vector<PublicCall>* calls);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_PUBLIC_CALLS_H_
