#include "tidepool/nn/budget/dry_step.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

// Some examples at a time: all of them would be there twice.
void FillAtRandom(NDArray& array) {
  constexpr int64_t kBytes = 16 << 10;
  const int64_t batch = array.dim(0);
  const int64_t bytes = array.NumElements() / batch * DTypeBytes(array.dtype());
  const int64_t at_once = std::clamp<int64_t>(kBytes / std::max<int64_t>(1, bytes), 1, batch);
  for (int64_t begin = 0; begin < batch; begin += at_once) {
    NDArray part = array.Slice(0, begin, std::min(batch, begin + at_once));
    CopyInto(RandomUniform(part.shape(), 0, 1, array.dtype(), /*seed=*/1,
                           static_cast<uint64_t>(begin), Place::Heap()),
             part);
  }
}

// Has the host write what `array` is to hold: there, or in memory of the host from where it is copied. Of dry runs on devices only
// integers are to be had, for hosts that look at indices and labels.
void WriteByHost(NDArray& array, bool dry, absl::FunctionRef<void(NDArray&)> write) {
  if (array.NumElements() == 0) return;
  if (array.device() == Host()) return write(array);
  if (dry && IsFloating(array.dtype())) return;
  const ScopeOutOfWorkspaces heap;
  NDArray host(array.shape(), array.dtype(), Place::Heap());
  write(host);
  CopyInto(host, array);
}

NDArray Made(const InputConfig& config, int64_t batch, DType floats, bool dry) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), config.shape.span().begin(), config.shape.span().end());
  const DType dtype = IsFloating(config.dtype) ? floats : config.dtype;
  NDArray array(Shape(dims), dtype);
  WriteByHost(array, dry, [dry](NDArray& there) {
    if (!IsFloating(there.dtype())) {
      // Indices are looked at on the host.
      std::memset(there.raw_data(), 0,
                  static_cast<size_t>(there.NumElements()) * DTypeBytes(there.dtype()));
    } else if (!dry) {
      FillAtRandom(there);
    }
  });
  return array;
}

// All positions count.
Arrays MadeMasks(const std::vector<std::optional<InputConfig>>& configs, int64_t batch, bool dry) {
  Arrays masks;
  for (const std::optional<InputConfig>& config : configs) {
    masks.push_back(config.has_value() ? Made(*config, batch, config->dtype, /*dry=*/true)
                                       : NDArray());
    if (!config.has_value() || dry) continue;
    WriteByHost(masks.back(), dry, [&](NDArray& there) {
      CopyInto(FromScalar(1, config->dtype, Place::Heap()).BroadcastTo(there.shape()), there);
    });
  }
  return masks;
}

// By the program, whose operators run and are in no workspace; empty where it writes none.
Arrays WrittenLabels(const Network& network, const StepShape& shape) {
  Arrays written;
  if (shape.write_labels == nullptr) return written;
  const ScopeOutOfWorkspaces heap;
  for (size_t i = 0; i < shape.labels.size(); ++i) {
    written.push_back(Made(shape.labels[i], shape.batch, network.dtype(), /*dry=*/true));
    NDArray& labels = written.back();
    if (IsFloating(labels.dtype())) std::memset(labels.raw_data(), 0, labels.buffer()->bytes);
    shape.write_labels(i, labels);
  }
  return written;
}

NetworkInputs MadeInputs(const Network& network, const StepShape& shape, int64_t batch, bool dry,
                         Arrays& written) {
  NetworkInputs inputs;
  const auto make = [&](NDArray& array, const InputConfig& config) {
    array = Made(config, batch, network.dtype(), dry);
  };
  const std::vector<InputConfig>& features = network.inputs();
  inputs.features.resize(features.size());
  inputs.labels.resize(shape.labels.size());
  for (size_t i = 0; i < features.size(); ++i) make(inputs.features[i], features[i]);
  for (size_t i = 0; i < shape.labels.size(); ++i) make(inputs.labels[i], shape.labels[i]);
  inputs.features_masks = MadeMasks(shape.features_masks, batch, dry);
  inputs.labels_masks = MadeMasks(shape.labels_masks, batch, dry);
  // Zeros are no labels of some losses.
  const Loss* const loss = network.loss();
  if (!written.empty()) {
    for (size_t i = 0; i < written.size(); ++i) {
      WriteByHost(inputs.labels[i], dry, [&](NDArray& labels) {
        std::memcpy(labels.raw_data(), written[i].raw_data(),
                    static_cast<size_t>(labels.NumElements()) * DTypeBytes(labels.dtype()));
      });
    }
    written.clear();
  } else if (loss != nullptr && !inputs.labels.empty() && !IsFloating(inputs.labels[0].dtype())) {
    std::vector<int64_t> output = {batch};
    const Shape& of_example = network.output_shape();
    output.insert(output.end(), of_example.span().begin(), of_example.span().end());
    WriteByHost(inputs.labels[0], dry,
                [&](NDArray& labels) { loss->WriteSomeLabels(Shape(output), labels); });
  }
  return inputs;
}

}  // namespace

std::vector<BatchMade> WaysOfBatches(const Network& network) {
  std::vector<BatchMade> ways = {BatchMade::kFeaturesFirst, BatchMade::kOutside};
  if (network.device() != Host()) ways.push_back(BatchMade::kOnDevice);
  return ways;
}

void RunStep(Network& network, const StepShape& shape, bool dry, BatchMade made) {
  const int64_t batch = shape.batch;
  const uint64_t step = network.step();
  const absl::Cleanup restore = [&] { network.set_step(step); };
  const HandlesOwnScope handles;
  Arrays written = WrittenLabels(network, shape);
  std::optional<KernelsOffScope> off;
  if (dry) off.emplace();
  // Open as long as what is made there is used.
  std::optional<Workspace> batches;
  std::optional<WorkspaceScope> on_device;
  NetworkInputs outside;
  if (made == BatchMade::kOutside) {
    const ScopeOutOfWorkspaces heap;
    outside = MadeInputs(network, shape, batch, dry, written);
  } else if (made == BatchMade::kOnDevice) {
    const AddressesOnlyScope no_memory;
    batches.emplace(network.name() + " dry batch", WorkspaceConfig(), network.device());
    on_device.emplace(*batches);
    outside = MadeInputs(network, shape, batch, dry, written);
  }
  const WorkspaceScope scope(network.training_workspace());
  const NetworkInputs inputs = made != BatchMade::kFeaturesFirst
                                   ? std::move(outside)
                                   : MadeInputs(network, shape, batch, dry, written);
  {
    NDArray losses;  // of a device they are read behind the gradients
    network.QueueGradients(network.PrepareInputs(inputs), [&](const NDArray& queued) {
      if (network.device() != Host()) losses = queued;
    });
  }
  if (shape.trainer != nullptr) shape.trainer->MakeWhatUpdateMakes();
}

void RunDryStep(Network& network, const StepShape& shape, MemoryOwner& owner, BatchMade made) {
  const MemoryOwnerScope beside(owner);
  RunStep(network, shape, /*dry=*/true, made);
}

void RenewWorkspace(Network& network, WorkspaceConfig config, MemoryOwner& owner) {
  config.prefault = false;
  const MemoryOwnerScope beside(owner);
  const AddressesOnlyScope no_memory;
  network.set_training_workspace(network.training_mode(), config);
}

void RestoreWorkspace(Network& network, const WorkspaceConfig& config) noexcept {
  WorkspaceConfig learned = config;
  learned.initial_size = 0;
  for (const WorkspaceConfig& one : {config, learned}) {
    try {
      return network.set_training_workspace(network.training_mode(), one);
    } catch (const Error&) {
      // Its first size is more than there is, or it has to have one.
    }
  }
  network.set_training_workspace(network.training_mode(), WorkspaceConfig());
}

}  // namespace tidepool::nn
