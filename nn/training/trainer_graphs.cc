// Steps that are captured once and replayed.
#include "tidepool/nn/training/trainer_graphs.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/finite.h"

namespace tidepool::nn {

void Trainer::set_graphs(bool graphs) {
  if (graphs == (graphs_ != nullptr)) return;
  if (graphs && network_.is_random()) {
    ThrowUnimplemented("trainer: layers that draw random numbers in each step cannot be captured");
  }
  if (graphs && network_.training_mode() == WorkspaceMode::kSeparate) {
    ThrowUnimplemented(
        "trainer: steps of workspace mode separate, whose workspaces open and close within them, "
        "cannot be captured");
  }
  Settle();
  graphs_ = graphs ? std::make_unique<Graphs>(network_) : nullptr;
}

const ReplayedStep::Stats* Trainer::graph_stats() const {
  return graphs_ != nullptr ? &graphs_->step.stats() : nullptr;
}

void Trainer::ForgetGraph() const {
  if (graphs_ != nullptr) graphs_->step.Forget();
}

double Trainer::ReplayStep(const NetworkInputs& inputs) {
  Graphs& graphs = *graphs_;
  const HandlesOwnScope handles;
  graphs.step.SetWorkspace(network_.training_workspace());  // another one behind a new budget
  const int64_t count = inputs.features[0].dim(0);
  const double scale = loss_scale_.has_value() ? loss_scale_->scale() : network_.loss_scale();
  graphs.Prepare(count, scale / static_cast<double>(count));
  if (loss_scale_.has_value()) updater_.set_gradient_scale(1 / scale);
  updater_.SetNumbers();
  const std::vector<const NDArray*> state = updater_.state();
  NDArray parameters = network_.parameters(), gradients = network_.gradients(),
          beside = network_.beside();
  NDArray first = !state.empty() ? *state[0] : NDArray();
  NDArray second = state.size() > 1 ? *state[1] : NDArray();
  std::vector<const NDArray*> reads = {&updater_.numbers(), &graphs.share};
  for (const auto* arrays :
       {&inputs.features, &inputs.labels, &inputs.features_masks, &inputs.labels_masks}) {
    for (const NDArray& array : *arrays) reads.push_back(&array);
  }
  const uint64_t random_step = network_.step();
  graphs.step.Run(reads, {&parameters, &gradients, &first, &second, &graphs.results, &beside}, [&] {
    // Averages are not taken where the step is skipped, as the device alone knows, or fails behind its gradients.
    NDArray before;
    if (beside.is_defined()) before = beside.CopyTo(Place::CurrentOn(beside.device()));
    absl::Cleanup restore = [&] { RestoreQuietly(before, beside); };
    network_.QueueGradients(
        inputs,
        [&](const NDArray& losses) {
          NDArray part = graphs.results.Slice(0, 0, count);
          CopyInto(losses, part);
        },
        /*states=*/nullptr, &graphs.share);
    NDArray mark = graphs.results.Index(0, count);
    if (loss_scale_.has_value()) CopyInto(FiniteMark(gradients), mark);
    // NaN is not equal to itself. A constant to compare with would come from the host, which captures cannot have.
    if (loss_scale_.has_value() && beside.is_defined())
      WhereInto(Equal(mark, mark), beside, before, beside);
    updater_.ApplyNumbers(gradients, parameters, loss_scale_.has_value() ? &mark : nullptr);
    std::move(restore).Cancel();
  });
  network_.set_step(random_step + 1);  // replays as well
  graphs.unsettled = true;
  // A step that nothing skips is done, whether its loss can be read or not.
  if (!loss_scale_.has_value()) updater_.Advance();
  return CountStep();
}

double Trainer::CountStep() {
  Graphs& graphs = *graphs_;
  const HandlesOwnScope handles;
  double loss = 0;
  bool finite = true;
  const auto read = [&](auto&& results) {
    const int64_t count = graphs.results.dim(0) - 1;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(results[i]);
    loss = sum / static_cast<double>(count);
    finite = results[count] == 0;
  };
  const auto read_any = [&] {
    if (graphs.results.dtype() == DType::kFloat64)
      return read(HostView<const double>(graphs.results));
    read(HostView<const float>(graphs.results));
  };
  if (!loss_scale_.has_value()) graphs.unsettled = false;
  std::exception_ptr told;
  try {
    read_any();
  } catch (const Error& error) {
    // What a kernel found wrong with values is told once, and behind the step, which is done.
    if (error.code() == absl::StatusCode::kInvalidArgument) told = std::current_exception();
    // It must not be reported as a step that is not done while the results can still be had.
    read_any();
  }
  graphs.unsettled = false;
  if (loss_scale_.has_value() && Observe(finite)) updater_.Advance();
  if (told != nullptr) std::rethrow_exception(told);
  return loss;
}

void Trainer::Settle() {
  if (graphs_ != nullptr && graphs_->unsettled) CountStep();
}

}  // namespace tidepool::nn
