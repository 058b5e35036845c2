#include "tidepool/nn/budget/step_costs.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/spill/host_block.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/network/network_body.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {
namespace {

// `costs`: StepCosts or StepTimes.
template <typename Costs>
void TakeCosts(ActivationProblem* problem, const Costs& costs) {
  const size_t layers = problem->layers.size();
  const auto &forward = costs.forward_seconds, &backward = costs.backward_seconds,
             &remake = costs.remake_seconds, &again = costs.again_seconds;
  for (size_t i = 0; i <= layers; ++i) {
    LayerActivations& layer = i < layers ? problem->layers[i] : problem->loss;
    layer.forward_seconds = forward[i];
    layer.backward_seconds = backward[i];
    if (i < layers && !remake.empty()) layer.remake_seconds = remake[i];
    if (i < layers && !again.empty()) layer.again_seconds = again[i];
  }
}

// Layers that are alike and take as many bytes have the median of their times: a clock's noise would have one of them computed
// again for another.
void ShareAmongAlike(const Network& network, ActivationProblem* problem) {
  using Key = std::tuple<std::string, int64_t, int64_t, int64_t>;
  std::map<Key, std::vector<LayerActivations*>> alike;
  const std::vector<LayerParameters> order = network.trained_by_layer();
  for (size_t i = 0; i < problem->layers.size(); ++i) {
    LayerActivations& layer = problem->layers[i];
    const NodeConfig& node = network.config()->nodes[static_cast<size_t>(order[i].layer)];
    alike[{node.layer->Describe(), layer.forward_bytes, layer.backward_bytes, layer.gradient_bytes}]
        .push_back(&layer);
  }
  for (auto& [key, layers] : alike) {
    for (double LayerActivations::*const seconds :
         {&LayerActivations::forward_seconds, &LayerActivations::backward_seconds,
          &LayerActivations::remake_seconds, &LayerActivations::again_seconds}) {
      const auto middle = layers.begin() + static_cast<std::ptrdiff_t>(layers.size() / 2);
      std::nth_element(layers.begin(), middle, layers.end(),
                       [&](const LayerActivations* a, const LayerActivations* b) {
                         return a->*seconds < b->*seconds;
                       });
      const double median = (*middle)->*seconds;
      for (LayerActivations* const layer : layers) layer->*seconds = median;
    }
  }
}

// Sums of many such are finite, as are times of transfers by such speeds.
constexpr double kMostSeconds = 1e9, kLeastSpeed = 1, kMostSpeed = 1e18;

void CheckSeconds(absl::string_view field, const std::vector<double>& seconds, size_t layers,
                  bool with_loss) {
  const size_t parts = with_loss ? layers + 1 : layers;
  if (seconds.size() != parts && (with_loss || !seconds.empty())) {
    ThrowInvalidArgument(absl::StrCat("step budget: costs.", field, " has ", seconds.size(),
                                      " values, expected ", parts, ", of ", layers, " layers",
                                      with_loss ? " and the loss" : ", or none"));
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] >= 0 && seconds[i] <= kMostSeconds) continue;
    ThrowInvalidArgument(absl::StrCat("step budget: costs.", field, "[", i, "] is ", seconds[i],
                                      ", expected 0 to ", kMostSeconds, " seconds"));
  }
}

void CheckSpeed(absl::string_view field, double speed) {
  if (speed == 0 || (speed >= kLeastSpeed && speed <= kMostSpeed)) return;
  ThrowInvalidArgument(absl::StrCat("step budget: costs.", field, " is ", speed, ", expected ",
                                    kLeastSpeed, " to ", kMostSpeed,
                                    " bytes a second, or 0 where nobody knows"));
}

}  // namespace

void CheckCosts(const Network& network, const StepCosts& costs) {
  const size_t layers = network.trained_by_layer().size();
  CheckSeconds("forward_seconds", costs.forward_seconds, layers, /*with_loss=*/true);
  CheckSeconds("backward_seconds", costs.backward_seconds, layers, /*with_loss=*/true);
  CheckSeconds("remake_seconds", costs.remake_seconds, layers, /*with_loss=*/false);
  CheckSeconds("again_seconds", costs.again_seconds, layers, /*with_loss=*/false);
  CheckSpeed("written_bytes_per_second", costs.written_bytes_per_second);
  CheckSpeed("read_bytes_per_second", costs.read_bytes_per_second);
}

void TakeGivenCosts(const StepCosts& costs, ActivationProblem* problem) {
  TakeCosts(problem, costs);
  if (costs.written_bytes_per_second > 0)
    problem->written_bytes_per_second = costs.written_bytes_per_second;
  if (costs.read_bytes_per_second > 0) problem->read_bytes_per_second = costs.read_bytes_per_second;
}

namespace {

size_t BytesToMeasureBy(int64_t bytes) {
  return static_cast<size_t>(std::clamp<int64_t>(bytes, 64 << 10, 16 << 20));
}

// The fastest of some calls that each move so many bytes.
double BytesPerSecond(size_t bytes, absl::FunctionRef<void()> call) {
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, static_cast<double>(bytes) / std::max(seconds, 1e-9));
  }
  return best;
}

}  // namespace

void MeasureFile(SpillFile& file, int64_t bytes, ActivationProblem* problem) {
  std::vector<std::byte> data(BytesToMeasureBy(bytes));
  // Bytes that nobody packs.
  uint64_t drawn = 1;
  for (size_t i = 0; i + sizeof drawn <= data.size(); i += sizeof drawn) {
    drawn = (drawn ^ drawn >> 29) * 0x9e3779b97f4a7c15u + i;
    std::memcpy(data.data() + i, &drawn, sizeof drawn);
  }
  std::vector<std::byte> back(data.size());
  SpilledBytes kept;
  const std::clock_t begin = std::clock();
  problem->written_bytes_per_second =
      BytesPerSecond(data.size(), [&] { kept = file.Write(data.data(), data.size()); });
  problem->read_bytes_per_second =
      BytesPerSecond(data.size(), [&] { file.Read(kept, back.data()); });
  // Of all threads, which steps would have had; they compute on all processors.
  const double processor_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  problem->round_trip_seconds_per_byte = processor_seconds /
                                         (3 * static_cast<double>(data.size())) /
                                         std::max(1u, std::thread::hardware_concurrency());
}

void MeasureHostCopies(Device device, int64_t bytes, ActivationProblem* problem) {
  problem->round_trip_seconds_per_byte = 0;  // the host does nothing of it
  const size_t size = BytesToMeasureBy(bytes);
  try {
    const ScopeOutOfWorkspaces heap;
    const HandlesOwnScope handles;
    const NDArray there = Zeros({static_cast<int64_t>(size)}, DType::kUInt8, Place::On(device));
    const BufferHandle here(NewHostBlockFor(device, size));
    DeviceProvider& provider = GetDeviceProvider(device, "step budget");
    const DeviceQueue queue = DeviceQueue::Here(device);
    queue.Wait();
    problem->written_bytes_per_second = BytesPerSecond(size, [&] {
      AskProvider("copy to the host", device, [&] {
        provider.WaitFor(provider.QueueCopyToHost(here->data, there.raw_data(), size,
                                                  provider.ComputePoint(queue.number())));
      });
    });
    problem->read_bytes_per_second = BytesPerSecond(size, [&] {
      AskProvider("copy from the host", device, [&] {
        provider.WaitFor(provider.QueueCopyFromHost(there.buffer()->data, here->data, size,
                                                    provider.ComputePoint(queue.number())));
      });
    });
  } catch (const OutOfMemoryError&) {
    // Plans are made for the speed that is taken where nobody knows.
  }
}

int64_t TakeTimes(Network& network, const StepShape& shape, int64_t limit,
                  ActivationProblem* problem) {
  try {
    const StepTimes times = MeasureTimes(network, shape, *problem, limit);
    TakeCosts(problem, times);
    for (size_t k = 0; k < times.slice_factors.size(); ++k) {
      problem->slices[k].forward_factor = times.slice_factors[k].first;
      problem->slices[k].backward_factor = times.slice_factors[k].second;
    }
    ShareAmongAlike(network, problem);
    return times.batch;
  } catch (const OutOfMemoryError&) {
    const std::vector<double> same(problem->layers.size() + 1, 1e-3);
    TakeCosts(problem, StepTimes{.forward_seconds = same, .backward_seconds = same});
    return 0;
  }
}

}  // namespace tidepool::nn
