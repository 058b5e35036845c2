#include "tidepool/tools/benchmarks/tidepool_side.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/benchmarks/training_networks.h"

namespace tidepool::tools {
namespace {

class TidepoolSide : public StepSide {
 public:
  TidepoolSide(Device device, bool graphs) : device_(device), graphs_(graphs) {}

  std::string Describe() override {
    return absl::StrCat("Tidepool with ", absl::StrJoin(KernelRegistry::Global().Providers(), ", "),
                        "; gcc " __VERSION__, "; on ", DeviceName(device_),
                        graphs_ ? " by graphs" : "");
  }

  int64_t Begin(const TrainingCase& wanted, const LabelledImages& images) override {
    SetThreadCount(wanted.threads);
    nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::ParseUpdater(wanted.updater));
    if (wanted.updater != "sgd" && wanted.updater != "adam") {
      ThrowInvalidArgument(
          absl::StrCat("updater is \"", wanted.updater, "\", expected sgd or adam"));
    }
    updater.learning_rate = wanted.updater == "sgd" ? kSgdLearningRate : kAdamLearningRate;
    batch_ = wanted.batch;
    if (device_ != Host()) peak_.emplace(device_);
    const Shape image{images.height, images.width, 1};
    network_.emplace(TrainingNetwork(wanted.model, image, images.classes),
                     nn::NetworkOptions{.seed = 1, .device = device_});
    trainer_.emplace(*network_, updater);
    if (graphs_) trainer_->set_graphs(true);
    batches_.emplace(images, batch_);
    return network_->NumParameters();
  }

  int64_t DevicePeakKib() override {
    if (!peak_.has_value()) return -1;
    return (peak_->peak_in_use_bytes() - peak_->start().in_use) / 1024;
  }

  double Step(int64_t first) override {
    return trainer_->Step([&] { return batches_->Make(first / batch_); });
  }

 private:
  const Device device_;
  const bool graphs_;
  int64_t batch_ = 0;
  std::optional<PeakScope> peak_;  // of a device
  std::optional<nn::Network> network_;
  std::optional<nn::Trainer> trainer_;
  std::optional<nn::ImageBatches> batches_;
};

}  // namespace

std::unique_ptr<StepSide> NewTidepoolSide(Device device, bool graphs) {
  return std::make_unique<TidepoolSide>(device, graphs);
}

}  // namespace tidepool::tools
