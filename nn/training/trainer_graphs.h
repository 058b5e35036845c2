// What a Trainer with graphs replays; included by its sources alone.
#ifndef TIDEPOOL_NN_TRAINING_TRAINER_GRAPHS_H_
#define TIDEPOOL_NN_TRAINING_TRAINER_GRAPHS_H_

#include <cstdint>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/restore_quietly.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

// What replays work on, beside the network and the updater.
struct Trainer::Graphs {
  explicit Graphs(Network& network)
      : batches(network.name() + " batches", WorkspaceConfig::Inference(), network.device()),
        step(network.training_workspace(), "trainer") {
    const MemoryOwnerScope owner("graphs");
    const HandlesOwnScope handles;
    share = Zeros({}, network.dtype(), Place::On(network.device()));
  }

  // Of a step of so many examples. Arrays that are others are captured anew; a share that stays is not sent again.
  void Prepare(int64_t count, double new_share) {
    if (!results.is_defined() || results.dim(0) != count + 1) {
      const MemoryOwnerScope owner("graphs");
      results = Zeros({count + 1}, share.dtype(), Place::On(share.device()));
    }
    if (new_share == share_value) return;
    const auto write = [&](auto number) {
      HostView<decltype(number)> view(share, ViewContents::kOverwritten);
      view[0] = number;
    };
    share.dtype() == DType::kFloat64 ? write(new_share) : write(static_cast<float>(new_share));
    share_value = new_share;
  }

  Workspace batches;
  NDArray
      results;  // [batch + 1], of the last step: losses, then the mark of its gradients (FiniteMark)
  NDArray share;  // []: the gradient of an example's loss
  double share_value = 0;
  bool unsettled = false;  // results have not been read, and the step is not counted
  ReplayedStep step;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TRAINING_TRAINER_GRAPHS_H_
