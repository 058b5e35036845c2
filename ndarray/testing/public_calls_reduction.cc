#include "tidepool/ndarray/testing/public_calls.h"

#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {

void AppendReductionCalls(std::vector<PublicCall>* calls) {
  using A = std::vector<NDArray>&;
  const Shape m{2, 2};
  const std::vector<Operand> x = {{"X", m}}, into = {{"X", m}, {"Z", {2}}};
  const std::vector<PublicCall> more = {
      {"sum", x, [](A a) { Sum(a[0]); }},
      {"sum", x, [](A a) { Sum(a[0], 0); }},
      {"sum", into, [](A a) { SumInto(a[0], 0, a[1]); }},
      {"sum", into, [](A a) { SumToLastAxisInto(a[0], a[1]); }},
      {"prod", x, [](A a) { Prod(a[0]); }},
      {"mean", x, [](A a) { Mean(a[0]); }},
      {"mean", into, [](A a) { MeanInto(a[0], 0, a[1]); }},
      {"variance", x, [](A a) { Variance(a[0]); }},
      {"variance", into, [](A a) { VarianceInto(a[0], 0, 1, a[1]); }},
      {"norm1", x, [](A a) { Norm1(a[0]); }},
      {"norm2", x, [](A a) { Norm2(a[0]); }},
      {"norm2", into, [](A a) { Norm2Into(a[0], 0, a[1]); }},
      {"norm_inf", x, [](A a) { NormInf(a[0]); }},
      {"log_sum_exp", x, [](A a) { LogSumExp(a[0]); }},
      {"log_sum_exp", into, [](A a) { LogSumExpInto(a[0], 0, a[1]); }},
      {"max", x, [](A a) { Max(a[0]); }},
      {"max", into, [](A a) { MaxInto(a[0], 0, a[1]); }},
      {"min", x, [](A a) { Min(a[0]); }},
      {"min", into, [](A a) { MinInto(a[0], 0, a[1]); }},
      {"any", x, [](A a) { Any(a[0]); }},
      {"all", x, [](A a) { All(a[0]); }},
      {"argmax", x, [](A a) { ArgMax(a[0]); }},
      {"argmax", {{"X", m}, {"Z", {2}, DType::kInt64}}, [](A a) { ArgMaxInto(a[0], 0, a[1]); }},
      {"argmin", x, [](A a) { ArgMin(a[0]); }},
  };
  calls->insert(calls->end(), more.begin(), more.end());
}

}  // namespace tidepool
