#include "tidepool/memory/profile/testing/sample_recordings.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {
namespace {

constexpr int64_t kMicrosecond = 1000;
constexpr uint8_t kAllocated = 0, kUnreferenced = 2, kWorkspace = 3, kGradients = 4;

class Maker {
 public:
  Maker() {
    data_.kinds = MemoryKindNames();
    data_.devices = {"host"};
    data_.tiers = {"host memory"};
    data_.began = "2026-01-01 00:00:00 UTC";
  }

  uint32_t String(const std::string& text) {
    const auto [found, is_new] =
        strings_.try_emplace(text, static_cast<uint32_t>(data_.strings.size()));
    if (is_new && !text.empty()) data_.strings.push_back(text);
    return text.empty() ? 0 : found->second;
  }
  uint32_t Place(const std::string& name, int64_t bytes) {
    data_.places.push_back({String(name), 0, bytes});
    return static_cast<uint32_t>(data_.places.size() - 1);
  }
  void Step(int64_t time, int64_t bytes, const std::string& owner, uint8_t kind,
            bool at_start = false) {
    data_.steps.push_back({time, bytes, 0, String(owner), kind, at_start});
  }
  ProfileArray Array(int64_t born, int64_t died, int64_t bytes, const std::string& name,
                     const std::string& site, const std::string& owner) {
    ProfileArray array;
    array.born = born;
    array.died = died;
    array.bytes = bytes;
    array.taken = (bytes + 63) / 64 * 64;
    array.name = String(name);
    array.site = String(site);
    array.owner = String(owner);
    return array;
  }

  // Lifetimes in requests: [index, upper).
  struct Request {
    int64_t bytes;
    uint32_t upper;
    std::string name, site, owner;
  };
  uint32_t Kind(uint32_t place, const std::string& owner, const std::vector<Request>& requests,
                bool outside, int64_t microseconds_each) {
    ProfileCycleKind kind;
    kind.place = place;
    kind.owner = String(owner);
    const auto count = static_cast<uint32_t>(requests.size());
    std::vector<LifetimeBuffer> problem;
    for (uint32_t i = 0; i < count; ++i) {
      problem.push_back({.lower = i,
                         .upper = std::max<int64_t>(i + 1, requests[i].upper),
                         .size = (requests[i].bytes + 63) / 64 * 64});
    }
    const Placement placement = PlanGreedy(problem, 64);
    kind.duration = count * microseconds_each * kMicrosecond;
    for (uint32_t i = 0; i < count; ++i) {
      const Request& request = requests[i];
      const int64_t born = i * microseconds_each * kMicrosecond;
      ProfileArray array = Array(
          born,
          request.upper >= count ? kind.duration : request.upper * microseconds_each * kMicrosecond,
          request.bytes, request.name, request.site, request.owner);
      array.place = place;
      array.offset = outside ? -1 : placement.offsets[i];
      array.flags = outside ? ProfileArray::kOutside : 0;
      kind.requests.push_back(array);
      kind.released_after.push_back(std::min(request.upper, count));
    }
    MeasureCycleKind(kind);
    data_.cycle_kinds.push_back(std::move(kind));
    return static_cast<uint32_t>(data_.cycle_kinds.size() - 1);
  }
  ProfileCycleKind& kind(uint32_t number) { return data_.cycle_kinds[number]; }
  int64_t Cycle(uint32_t kind, uint64_t generation, int64_t begin) {
    const int64_t end = begin + data_.cycle_kinds[kind].duration;
    data_.cycles.push_back({kind, 1, generation, begin, end});
    return end;
  }
  ProfileData& data() { return data_; }

 private:
  ProfileData data_;
  std::map<std::string, uint32_t> strings_ = {{"", 0}};
};

// A forward and a backward pass through convolutions.
std::vector<Maker::Request> StepRequests(int64_t batch) {
  std::vector<Maker::Request> requests;
  constexpr int kLayers = 8;
  constexpr uint32_t kEach = 4;  // requests of a layer each way
  const auto site = [](const char* op, int layer, const char* pass) {
    return absl::StrCat("tidepool::", op,
                        " < tidepool::nn::", layer % 2 == 0 ? "Convolution" : "Activation",
                        "::", pass, " < tidepool::nn::Network::", pass,
                        " < tidepool::nn::Trainer::Step < tidepool::tools::RunTrain < main");
  };
  const uint32_t all = kLayers * kEach * 2;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string owner =
        absl::StrCat("network #layer ", layer % 2 == 0 ? "conv" : "relu", layer / 2 + 1);
    const int64_t bytes = batch * (40 - 4 * layer) * 1024;
    const auto at = static_cast<uint32_t>(requests.size());
    requests.push_back(
        {bytes, all - at,
         layer % 2 == 0 ? "conv2d: f32 [64, 28, 28, 32]" : "relu: f32 [64, 28, 28, 32]",
         site("Conv2d", layer, "Forward"), owner});
    requests.push_back({bytes / 3, at + 2, "", site("RunKernel", layer, "Forward"), owner});
    requests.push_back({bytes / 8, all - at - 3, "max_pool: f32 [64, 14, 14, 32]",
                        site("MaxPool", layer, "Forward"), owner});
    requests.push_back({1024, at + 4, "add: f32 [256]", site("Add", layer, "Forward"), owner});
  }
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    const std::string owner =
        absl::StrCat("network #layer ", layer % 2 == 0 ? "conv" : "relu", layer / 2 + 1);
    const int64_t bytes = batch * (40 - 4 * layer) * 1024;
    const auto at = static_cast<uint32_t>(requests.size());
    requests.push_back({bytes, at + 5, "conv2d_backward_input: f32 [64, 28, 28, 32]",
                        site("Conv2dBackwardInput", layer, "Backward"), owner});
    requests.push_back({bytes / 2, at + 3, "conv2d_backward_filter: f32 [3, 3, 32, 32]",
                        site("Conv2dBackwardFilter", layer, "Backward"), owner});
    requests.push_back({bytes / 8, at + 3, "", site("RunKernel", layer, "Backward"), owner});
    requests.push_back({512, at + 4, "sum: f32 [128]", site("Sum", layer, "Backward"), owner});
  }
  return requests;
}

}  // namespace

ProfileData TrainingRecording(int steps) {
  Maker maker;
  ProfileData& data = maker.data();
  data.title = "A training run, made up";
  constexpr int64_t kMiB = 1 << 20;
  maker.Step(0, 9 * kMiB, "data set", kAllocated, true);
  maker.Step(0, 3 * kMiB, "network", kAllocated, true);
  const uint32_t training = maker.Place("workspace training", 24 * kMiB);
  const uint32_t validation = maker.Place("workspace validation", 8 * kMiB);
  const uint32_t heap = maker.Place("heap of host", 0);
  const std::string of_training = "network/workspace training",
                    of_validation = "network/workspace validation";

  const uint32_t learning = maker.Kind(training, of_training, StepRequests(64), true, 40);
  const uint32_t planned = maker.Kind(training, of_training, StepRequests(64), false, 25);
  const uint32_t validating = maker.Kind(validation, of_validation, StepRequests(24), false, 15);
  std::vector<Maker::Request> last = StepRequests(40);
  last.push_back({3 * kMiB, 1000, "",
                  "tidepool::Ones < Debug::Remember(std::vector<NDArray> const&) < main",
                  "network #debug </script><b>"});
  const uint32_t odd = maker.Kind(training, of_training, last, false, 30);
  for (size_t i = 20; i < 26; ++i) {
    maker.kind(odd).requests[i].flags |= ProfileArray::kMissed | ProfileArray::kOutside;
    maker.kind(odd).requests[i].offset = -1;
  }
  maker.kind(odd).requests.back().flags |= ProfileArray::kLeaked;
  MeasureCycleKind(maker.kind(odd));

  int64_t now = 300 * kMicrosecond;
  maker.Step(now, 40 * kMiB, of_training, kUnreferenced);
  now = maker.Cycle(learning, 1, now);
  maker.Step(now, maker.kind(planned).peak - 40 * kMiB, of_training, kUnreferenced);
  maker.Step(now, 60 << 10, of_training, kWorkspace);
  maker.Step(now, 3 * kMiB, "network #gradients", kGradients);
  maker.Step(now, 9 * kMiB, of_validation, kUnreferenced);
  for (int step = 0; step < steps; ++step) {
    now += 120 * kMicrosecond;
    if (step % 40 == 39) {
      for (int i = 0; i < 3; ++i)
        now = maker.Cycle(validating, 1 + step / 40 * 3 + i, now) + 60 * kMicrosecond;
      const int64_t bytes = (1 + step % 7) * kMiB / 2;
      ProfileArray array =
          maker.Array(now, now + 6000 * kMicrosecond, bytes, "softmax: f32 [1000, 10]",
                      "tidepool::Softmax < tidepool::EvaluateModel < main", "evaluation");
      array.place = heap;
      data.arrays.push_back(array);
      maker.Step(now, bytes, "evaluation", kAllocated);
      maker.Step(now + 6000 * kMicrosecond, -bytes, "evaluation", kAllocated);
    }
    now = maker.Cycle(planned, 2 + step, now);
  }
  now = maker.Cycle(odd, 2 + steps, now + 100 * kMicrosecond);
  std::stable_sort(data.steps.begin(), data.steps.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  data.duration = now + 7000 * kMicrosecond;
  data.device_peaks = {60 * kMiB};
  data.notes.push_back("this recording is made up");
  return std::move(data);
}

ProfileData UnevenRecording(int arrays, int cycles, uint64_t seed) {
  Maker maker;
  ProfileData& data = maker.data();
  data.title = "Many arrays, made up";
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  const uint32_t heap = maker.Place("heap of host", 0);
  for (int i = 0; i < arrays; ++i) {
    const int64_t born = i * 3 * kMicrosecond + below(3000), bytes = 64 << below(16);
    const bool stays = below(1000) == 0;
    const int64_t died = born + 1 + below(int64_t{1} << (10 + below(20)));
    const std::string owner = absl::StrCat("component ", below(12), " #part ", below(5));
    ProfileArray array =
        maker.Array(born, stays ? kAliveAtEnd : died, bytes,
                    absl::StrCat("op", below(40), ": f32 [", bytes / 4, "]"),
                    absl::StrCat("f", below(500), " < g", below(50), " < main"), owner);
    array.taken = array.bytes;
    array.place = heap;
    data.arrays.push_back(array);
    maker.Step(born, bytes, owner, kAllocated);
    if (!stays) maker.Step(died, -bytes, owner, kAllocated);
    data.duration = std::max(data.duration, died);
  }
  std::stable_sort(data.steps.begin(), data.steps.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  const uint32_t pages = maker.Place("workspace requests", 1 << 24);
  int64_t now = 1000;
  for (int i = 0; i < cycles; ++i) {
    std::vector<Maker::Request> requests;
    const auto count = static_cast<uint32_t>(5 + below(60));
    for (uint32_t r = 0; r < count; ++r) {
      requests.push_back({64 << below(14), static_cast<uint32_t>(r + 1 + below(20)),
                          absl::StrCat("op", below(40), ": f32 [8]"),
                          absl::StrCat("f", below(500), " < main"),
                          absl::StrCat("service #part ", below(5))});
    }
    now = maker.Cycle(maker.Kind(pages, "service", requests, false, 1),
                      static_cast<uint64_t>(i) + 1, now) +
          1000;
  }
  data.duration = std::max(data.duration, now);
  int64_t bytes = 0, most = 0;
  for (const ProfileStep& step : data.steps) most = std::max(most, bytes += step.bytes);
  data.device_peaks = {most};
  return std::move(data);
}

}  // namespace tidepool
