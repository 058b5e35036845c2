#include "tidepool/nn/memory_report.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool::nn {
namespace {

// Of what reports take, which is how it is known: one at a time.
constexpr char kOwner[] = "memory report";
std::mutex& OneAtATime() {
  static std::mutex* const mutex = new std::mutex;
  return *mutex;
}

// Larger arrays of integers are left as they are.
constexpr size_t kMostCleared = size_t{16} << 20;

// Steps and requests that are the same from here on.
constexpr int kCycles = 4;
// Batches beyond the largest that fits by halving, which are tried too: next to it, and evenly up to twice as many.
constexpr int64_t kMoreTried = 8, kFarTried = 16;

const char* ModeText(WorkspaceMode mode) {
  switch (mode) {
    case WorkspaceMode::kEnabled:
      return "enabled";
    case WorkspaceMode::kSingle:
      return "single";
    case WorkspaceMode::kSeparate:
      return "separate";
    case WorkspaceMode::kNone:
      return "none";
  }
  return "";
}

NDArray Made(const InputConfig& config, int64_t batch, DType floats, Device device) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), config.shape.span().begin(), config.shape.span().end());
  NDArray array(Shape(dims), IsFloating(config.dtype) ? floats : config.dtype,
                Place::CurrentOn(device));
  // Layers of a program's own may look at indices on the host; a report of batches that no memory holds takes none all the same.
  if (!IsFloating(array.dtype()) && device == Host() && array.NumElements() > 0 &&
      array.buffer()->bytes <= kMostCleared) {
    std::memset(array.buffer()->data, 0, array.buffer()->bytes);
  }
  return array;
}

}  // namespace

// Has the network's workspaces put aside for as long as it lives.
class NetworkMeter {
 public:
  NetworkMeter(Network& network, const MemoryReportOptions& options)
      : network_(network), options_(options) {
    if (network.training_workspace().is_open() || network.inference_workspace().is_open()) {
      ThrowFailedPrecondition(absl::StrCat("memory report: network [", network.name(),
                                           "] has a workspace open, expected closed"));
    }
    // Before anything is put aside: without memory for it nothing would bring that back.
    auto of_report = std::make_unique<Network::Workspaces>();
    tape_ = std::move(network.tape_);
    training_ = std::move(network.training_workspace_);
    inference_ = std::move(network.inference_workspace_);
    workspaces_ = std::move(network.workspaces_);
    network.workspaces_ = std::move(of_report);
    step_ = network.step_;
  }
  ~NetworkMeter() {
    network_.workspaces_ = std::move(workspaces_);
    network_.training_workspace_ = std::move(training_);
    network_.inference_workspace_ = std::move(inference_);
    network_.tape_ = std::move(tape_);
    network_.step_ = step_;
  }
  NetworkMeter(const NetworkMeter&) = delete;
  NetworkMeter& operator=(const NetworkMeter&) = delete;

  PhaseMemory Measure(bool training) {
    using Phase = LayerWorkspaceManager::Phase;
    const Phase phase = training ? Phase::kTraining : Phase::kInference;
    // A network has both.
    if (!training && network_.training_workspace_ == nullptr) Retire(Phase::kTraining);
    PhaseMemory memory;
    memory.mode = training ? network_.training_mode() : network_.inference_mode();
    // By type: where arrays of each type have a place of their own.
    Prepare(WorkspaceMode::kSeparate, LearningPolicy::kFirstLoop, phase);
    ManagerOf(training).set_uses(&memory.layers);
    Run(training, &memory.input_bytes);
    ManagerOf(training).set_uses(nullptr);
    std::erase_if(memory.layers, [](const LayerUse& use) {
      return use.layer.empty() && std::all_of(std::begin(use.bytes), std::end(use.bytes),
                                              [](int64_t bytes) { return bytes == 0; });
    });

    Prepare(WorkspaceMode::kEnabled, LearningPolicy::kOptimized, phase);
    for (int i = 0; i < kCycles; ++i) Run(training, nullptr);
    memory.lower_bound_bytes =
        static_cast<int64_t>(WorkspaceOf(training).stats().live_lower_bound_bytes);
    if (memory.mode == WorkspaceMode::kNone) {
      memory.planned_bytes = memory.workspace_bytes = memory.lower_bound_bytes;
      PrepareAsConfigured(training);
      try {
        // Single arrays are more than their bytes, and a tape is beside them.
        Run(training, nullptr);
        memory.workspace_bytes = TakenByARun(training);
      } catch (const OutOfMemoryError&) {
        // So many at once there are not: the bound has to do.
      }
      Retire(phase);
      return memory;
    }
    PrepareAsConfigured(training);
    for (int i = 0; i < kCycles; ++i) Run(training, nullptr);
    WorkspaceOf(training).FinishPlanSearch();
    memory.workspace_bytes = TakenByARun(training);
    for (const Workspace* workspace : ManagerOf(training).workspaces()) {
      const auto planned = static_cast<int64_t>(workspace->stats().planned_peak_bytes);
      memory.planned_bytes += planned > 0 ? planned : static_cast<int64_t>(workspace->size());
    }
    Retire(phase);
    return memory;
  }

 private:
  LayerWorkspaceManager& ManagerOf(bool training) {
    return training ? network_.workspaces_->training : network_.workspaces_->inference;
  }
  Workspace& WorkspaceOf(bool training) {
    return training ? *network_.training_workspace_ : *network_.inference_workspace_;
  }

  // The most in a step or a request, the tape's records among it, by all that the report has made.
  int64_t TakenByARun(bool training) {
    PeakScope peak(network_.device(), &MemoryOwner::Process().Child(kOwner));
    Run(training, nullptr);
    return peak.peak_bytes();
  }

  void Set(WorkspaceMode mode, WorkspaceConfig config, LayerWorkspaceManager::Phase phase) {
    config.prefault = false;
    const AddressesOnlyScope no_memory;  // of devices
    const bool training = phase == LayerWorkspaceManager::Phase::kTraining;
    auto workspace = std::make_unique<Workspace>(absl::StrCat(network_.name(), " report"), config,
                                                 network_.device());
    config.initial_size = 0;
    ManagerOf(training) = LayerWorkspaceManager(*workspace, mode, phase, config);
    (training ? network_.training_workspace_ : network_.inference_workspace_) =
        std::move(workspace);
  }
  void Prepare(WorkspaceMode mode, LearningPolicy learning, LayerWorkspaceManager::Phase phase) {
    WorkspaceConfig config;
    config.policy_learning = learning;
    Set(mode, config, phase);
  }
  // What was measured is not counted with the other phase.
  void Retire(LayerWorkspaceManager::Phase phase) {
    WorkspaceConfig config;
    config.workspace_mode = WorkspaceMode::kNone;
    Set(WorkspaceMode::kNone, config, phase);
  }
  void PrepareAsConfigured(bool training) {
    const Workspace& configured = training ? *training_ : *inference_;
    Set(training ? network_.training_mode() : network_.inference_mode(), configured.config(),
        training ? LayerWorkspaceManager::Phase::kTraining
                 : LayerWorkspaceManager::Phase::kInference);
  }

  void Run(bool training, int64_t* input_bytes) {
    const KernelsOffScope off;
    const AddressesOnlyScope no_memory;  // of workspaces that are made when they are needed
    const HandlesOwnScope handles;
    if (!training) {
      network_.Infer([&] { return Input(0); }, [](const NDArray&) {});
      return;
    }
    const WorkspaceScope scope(*network_.training_workspace_);
    NetworkInputs inputs;
    for (size_t i = 0; i < network_.inputs().size(); ++i) inputs.features.push_back(Input(i));
    for (const InputConfig& label : options_.labels) {
      inputs.labels.push_back(Made(label, options_.batch, network_.dtype(), network_.device()));
    }
    if (input_bytes != nullptr)
      *input_bytes = static_cast<int64_t>(network_.training_workspace_->bytes_this_cycle());
    NDArray losses;  // of a device they are read behind the gradients
    network_.QueueGradients(inputs, [&](const NDArray& queued) {
      if (network_.device() != Host()) losses = queued;
    });
    network_.tape_.reset();
  }
  NDArray Input(size_t i) const {
    return Made(network_.inputs()[i], options_.batch, network_.dtype(), network_.device());
  }

  Network& network_;
  const MemoryReportOptions& options_;
  std::unique_ptr<GradientTape> tape_;
  std::unique_ptr<Workspace> training_, inference_;
  std::unique_ptr<Network::Workspaces> workspaces_;
  uint64_t step_ = 0;
};

namespace {

// Of the phases that are asked for.
MemoryReport Report(Network& network, const MemoryReportOptions& options, bool training,
                    bool inference) {
  if (options.batch < 1)
    ThrowInvalidArgument(
        absl::StrCat("memory report: a batch of ", options.batch, ", expected at least 1"));
  if (options.updater_arrays < 0) {
    ThrowInvalidArgument(absl::StrCat("memory report: updater_arrays ", options.updater_arrays,
                                      ", expected at least 0"));
  }
  MemoryReport report;
  report.network = network.name();
  report.batch = options.batch;
  report.parameter_bytes =
      static_cast<int64_t>(network.arrays().buffer() ? network.arrays().buffer()->bytes : 0);
  report.gradient_bytes =
      static_cast<int64_t>(network.gradients().buffer() ? network.gradients().buffer()->bytes : 0);
  report.updater_bytes = options.updater_arrays * report.gradient_bytes;
  const bool has_requests = network.inputs().size() == 1 && network.output_shapes().size() == 1;
  const std::lock_guard<std::mutex> lock(OneAtATime());
  const MemoryOwnerScope owner(MemoryOwner::Process().Child(kOwner));
  NetworkMeter meter(network, options);
  if (training) report.training = meter.Measure(/*training=*/true);
  if (!inference) return report;
  if (has_requests) {
    report.inference = meter.Measure(/*training=*/false);
  } else {
    report.inference.mode = network.inference_mode();
  }
  return report;
}

}  // namespace

MemoryReport ReportMemory(Network& network, const MemoryReportOptions& options) {
  return Report(network, options, /*training=*/true, /*inference=*/true);
}

int64_t LargestBatch(Network& network, const MemoryReportOptions& options, int64_t budget_bytes,
                     bool training, int64_t limit) {
  const auto fits = [&](int64_t batch) {
    MemoryReportOptions tried = options;
    tried.batch = batch;
    try {
      const MemoryReport report = Report(network, tried, training, !training);
      return (training ? report.training_bytes() : report.inference_bytes()) <= budget_bytes;
    } catch (const OutOfMemoryError&) {
      return false;
    } catch (const Error& error) {
      // Beyond what an array can have.
      if (batch > 1 && error.code() == absl::StatusCode::kInvalidArgument) return false;
      throw;
    }
  };
  if (limit < 1 || !fits(1)) return 0;
  // `bad`: some that does not fit, or 0: none is known yet.
  int64_t good = 1, bad = 0;
  while (true) {
    while (bad == 0 && good < limit) {
      const int64_t next = good > limit / 2 ? limit : 2 * good;
      (fits(next) ? good : bad) = next;
    }
    if (bad == 0) return good;
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      (fits(middle) ? good : bad) = middle;
    }
    // More examples may take less, where a plan lies closer or a kernel takes less scratch: from the most on.
    std::set<int64_t, std::greater<>> more;
    for (int64_t i = 2; i <= std::min(limit - good, kMoreTried); ++i) more.insert(good + i);
    for (int64_t i = 1, rest = std::min(limit - good, good); i <= kFarTried; ++i) {
      const int64_t beyond = rest / kFarTried * i + rest % kFarTried * i / kFarTried;
      if (beyond > 1) more.insert(good + beyond);
    }
    int64_t above = 0;
    const auto found = std::find_if(more.begin(), more.end(), [&](int64_t batch) {
      if (fits(batch)) return true;
      above = batch;
      return false;
    });
    if (found == more.end()) return good;
    good = *found;
    bad = above;
  }
}

namespace {

constexpr std::pair<ArrayType, const char*> kColumns[] = {
    {ArrayType::kActivations, "activations"},
    {ArrayType::kForwardWorkingMemory, "forward work"},
    {ArrayType::kActivationGradients, "gradients"},
    {ArrayType::kBackwardWorkingMemory, "backward work"},
};

void AppendPhase(std::string* text, const char* name, const PhaseMemory& phase, size_t columns) {
  absl::StrAppendFormat(text, "%s, mode %s\n  %-24s", name, ModeText(phase.mode), "layer");
  for (size_t c = 0; c < columns; ++c) absl::StrAppendFormat(text, " %14s", kColumns[c].second);
  absl::StrAppend(text, "\n");
  for (const LayerUse& use : phase.layers) {
    absl::StrAppendFormat(text, "  %-24s", use.layer);
    for (size_t c = 0; c < columns; ++c)
      absl::StrAppendFormat(text, " %14d", use.bytes[static_cast<int>(kColumns[c].first)]);
    absl::StrAppend(text, "\n");
  }
  if (phase.input_bytes > 0) absl::StrAppendFormat(text, "  batch %d bytes\n", phase.input_bytes);
  absl::StrAppendFormat(
      text, "  most alive at once %d bytes, planned peak %d bytes, workspaces %d bytes\n",
      phase.lower_bound_bytes, phase.planned_bytes, phase.workspace_bytes);
}

nlohmann::ordered_json JsonOf(const PhaseMemory& phase) {
  nlohmann::ordered_json json;
  json["mode"] = ModeText(phase.mode);
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerUse& use : phase.layers) {
    nlohmann::ordered_json layer;
    layer["name"] = use.layer;
    for (int t = 0; t < kArrayTypes; ++t) {
      if (use.bytes[t] > 0) layer["bytes"][ArrayTypeName(static_cast<ArrayType>(t))] = use.bytes[t];
    }
    json["layers"].push_back(std::move(layer));
  }
  json["input_bytes"] = phase.input_bytes;
  json["lower_bound_bytes"] = phase.lower_bound_bytes;
  json["planned_bytes"] = phase.planned_bytes;
  json["workspace_bytes"] = phase.workspace_bytes;
  return json;
}

}  // namespace

std::string MemoryReport::ToString() const {
  std::string text =
      absl::StrFormat("network %s, batch %d, bytes\n  parameters %d, gradients %d, updater %d\n",
                      network, batch, parameter_bytes, gradient_bytes, updater_bytes);
  AppendPhase(&text, "training", training, 4);
  absl::StrAppendFormat(&text, "  in all %d bytes\n", training_bytes());
  AppendPhase(&text, "inference", inference, 2);
  absl::StrAppendFormat(&text, "  in all %d bytes\n", inference_bytes());
  return text;
}

std::string MemoryReport::ToJson() const {
  nlohmann::ordered_json json;
  json["network"] = network;
  json["batch"] = batch;
  json["parameter_bytes"] = parameter_bytes;
  json["gradient_bytes"] = gradient_bytes;
  json["updater_bytes"] = updater_bytes;
  json["training"] = JsonOf(training);
  json["training"]["total_bytes"] = training_bytes();
  json["inference"] = JsonOf(inference);
  json["inference"]["total_bytes"] = inference_bytes();
  return json.dump(2);
}

}  // namespace tidepool::nn
