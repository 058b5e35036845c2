// What is left of training that diverges: its end, told by step, and the last epoch's parameters.
#ifndef TIDEPOOL_TOOLS_COMMANDS_LAST_FINITE_H_
#define TIDEPOOL_TOOLS_COMMANDS_LAST_FINITE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/model.h"

namespace tidepool::tools {

// Training goes wrong at one update and shows it in the loss of the next step, when the parameters
// are lost already. So those of the last epoch's end are kept, if a path to save them is given: one
// copy on their device, made and looked through once an epoch. Steps cost nothing: their loss,
// which has been read anyway, is compared.
class LastFinite {
 public:
  // Empty `save`: nothing is kept. The model outlives this. `advice` is in the messages.
  LastFinite(nn::Model& model, std::string save,
             std::string advice = "a lower --learning_rate may help")
      : model_(model), save_(std::move(save)), advice_(std::move(advice)) {}

  // `step` from 1. Throws CommandFailed naming step, epoch and loss, and where the parameters of
  // the last epoch are now ("<save>.epoch-3"), when the loss is not finite; `save` itself is left
  // alone.
  void CheckLoss(double loss, int64_t step, int epoch);
  // The same of the parameters after an epoch's last step, and of what the network makes of
  // `make_input`'s batch by them, or of its first example where a budget has room for no more:
  // finite parameters may be too large to compute with.
  void EndEpoch(int64_t step, int epoch, absl::FunctionRef<NDArray()> make_input);
  // Training has ended well: the copy goes.
  void Release() { kept_ = NDArray(); }

 private:
  [[noreturn]] void Fail(int64_t step, int epoch, const std::string& what);

  nn::Model& model_;
  const std::string save_, advice_;
  NDArray kept_;              // Network::arrays()
  bool has_no_room_ = false;  // for kept_
  int kept_epoch_ = 0;        // 0: none
};

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_LAST_FINITE_H_
