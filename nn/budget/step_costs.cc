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

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"
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

void MeasureFile(SpillFile& file, int64_t bytes, ActivationProblem* problem) {
  std::vector<std::byte> data(static_cast<size_t>(std::clamp<int64_t>(bytes, 64 << 10, 16 << 20)));
  // Bytes that nobody packs.
  uint64_t drawn = 1;
  for (size_t i = 0; i + sizeof drawn <= data.size(); i += sizeof drawn) {
    drawn = (drawn ^ drawn >> 29) * 0x9e3779b97f4a7c15u + i;
    std::memcpy(data.data() + i, &drawn, sizeof drawn);
  }
  std::vector<std::byte> back(data.size());
  const auto per_second = [&](const auto& call) {
    double best = 0;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      best = std::max(best, static_cast<double>(data.size()) / std::max(seconds, 1e-9));
    }
    return best;
  };
  SpilledBytes kept;
  const std::clock_t begin = std::clock();
  problem->written_bytes_per_second =
      per_second([&] { kept = file.Write(data.data(), data.size()); });
  problem->read_bytes_per_second = per_second([&] { file.Read(kept, back.data()); });
  // Of all threads, which steps would have had; they compute on all processors.
  const double processor_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  problem->round_trip_seconds_per_byte = processor_seconds /
                                         (3 * static_cast<double>(data.size())) /
                                         std::max(1u, std::thread::hardware_concurrency());
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
