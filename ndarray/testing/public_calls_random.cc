#include "tidepool/ndarray/testing/public_calls.h"

#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/random.h"

namespace tidepool {

void AppendRandomCalls(std::vector<PublicCall>* calls) {
  using A = std::vector<NDArray>&;
  const Shape m{2, 2};
  const std::vector<PublicCall> more = {
      {"dropout", {{"X", m}}, [](A a) { Dropout(a[0], 0.5, 1, 2); }},
      {"dropout", {{"X", m}, {"Z", m}}, [](A a) { DropoutInto(a[0], 0.5, 1, 2, a[1]); }},
      {"gather", {{"X", m}}, [](A a) { Shuffle(a[0], 1); }},
  };
  calls->insert(calls->end(), more.begin(), more.end());
}

}  // namespace tidepool
