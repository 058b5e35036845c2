// Of step_budget.cc: steps that are run to be measured write their gradients beside the network's, and tell nobody of them.
#ifndef TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_
#define TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_

#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// As long as it lives gradients() is another array, of which nobody reads what it holds, and there is no gradient listener. Afterwards both
// are as they were, values included. Of a network on the host that has its own parameters; of any other it does nothing. Memory: a
// thousandth of the gradients, 64 KiB at least, whose pages stand for all of them; beside the budgets. Throws OutOfMemoryError.
class GradientsAside {
 public:
  explicit GradientsAside(Network& network);
  ~GradientsAside();
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

 private:
  Network& network_;
  bool is_aside_ = false;
  NDArray gradients_;
  std::vector<NDArray> views_;
  GradientListener* listener_ = nullptr;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_
