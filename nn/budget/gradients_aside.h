// Of step_budget.cc: steps that are run to be measured write their gradients beside the network's, and tell nobody of them.
#ifndef TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_
#define TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_

#include <cstdint>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// As long as it lives gradients() is another array, of which nobody reads what it holds, and there is no gradient listener. Afterwards both
// are as they were, values included. Of a network that has its own parameters; of any other it does nothing. Memory: a
// thousandth of the gradients, 64 KiB at least, whose pages stand for all of them. On a device gradients() stays the same array, and the
// host has a copy of its values meanwhile. Beside the budgets. Throws OutOfMemoryError, and what copies from the device throw.
class GradientsAside {
 public:
  explicit GradientsAside(Network& network);
  // As Restore(), but that nobody is told of what fails.
  ~GradientsAside();
  GradientsAside(const GradientsAside&) = delete;
  GradientsAside& operator=(const GradientsAside&) = delete;

  // All is as it was from here on. Throws where a device refuses: its gradients are lost then.
  void Restore();

 private:
  Network& network_;
  bool is_aside_ = false;
  NDArray gradients_;  // on the host
  // Of a device's.
  NDArray values_;
  uint32_t version_ = 0;
  std::vector<NDArray> views_;
  GradientListener* listener_ = nullptr;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_GRADIENTS_ASIDE_H_
