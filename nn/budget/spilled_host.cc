#include "tidepool/nn/budget/spilled_host.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/budget/spilled_unit.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

constexpr char kName[] = "spilled trainer";
constexpr int kMostAhead = 64;

// Each parameter as its layer says, with what pads it: a Trainer's groups, where it has any.
std::vector<ParameterGroup> GroupsOf(const Network& network) {
  std::vector<ParameterGroup> groups;
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (!parameter.is_trained) break;
    if (!groups.empty()) groups.back().end = parameter.begin;
    groups.push_back(
        {.begin = parameter.begin, .end = network.trained_elements(), .decays = parameter.decays});
  }
  return groups;
}

}  // namespace

SpilledTrainer::Host::Host(Network& network, const UpdaterConfig& updater,
                           const SpilledTrainerOptions& options)
    : network_(network),
      updater_(updater, {network.trained_elements()}, network.device(), network.dtype(),
               GroupsOf(network), Updater::State::kNone),
      file_(options.file != nullptr ? options.file : std::make_shared<SpillFile>()),
      element_(DTypeBytes(network.dtype())),
      clips_all_(updater.clipping.kind == ClippingKind::kGlobalNorm) {
  if (options.ahead < 0 || options.ahead > kMostAhead) {
    ThrowInvalidArgument(
        absl::StrCat(kName, ": ahead is ", options.ahead, ", expected 0 to ", kMostAhead));
  }
  if (options.memory_bytes < 0) {
    ThrowInvalidArgument(absl::StrCat(kName, ": memory_bytes is ", options.memory_bytes,
                                      ", expected 0 (no limit) or more"));
  }
  network.CheckCanBeHosted();
  if (network.activations() != nullptr) {
    ThrowFailedPrecondition(absl::StrCat(
        kName, ": network [", network.name(),
        "] has a step budget (SetStepBudget, a BudgetFollower or SetActivationPlan), and steps "
        "whose parameters are in a file keep all that waits for the backward pass; expected "
        "ClearStepBudget(network) before, or smaller batches"));
  }
  MakeUnits();
  ChoosePlan(options);
  SortByPlace();
  FillFile();
  network.HostParameters(this);
}

SpilledTrainer::Host::~Host() {
  try {
    network_.HostParameters(nullptr);
  } catch (const Error&) {
    // The network was moved from.
  }
}

// What one layer alone reads is a unit; what several share is one by itself.
void SpilledTrainer::Host::MakeUnits() {
  const std::vector<LayerParameters> layers = network_.trained_by_layer();
  const std::vector<NamedParameter>& named = network_.named_parameters();
  places_ = static_cast<int>(layers.size());
  for (size_t k = 0; k < named.size() && named[k].is_trained; ++k) parameters_.emplace_back();
  std::vector<UnitUse> of(parameters_.size(), {places_, -1, 0});
  for (int place = 0; place < places_; ++place) {
    const LayerParameters& layer = layers[static_cast<size_t>(place)];
    if (static_cast<size_t>(layer.layer) >= place_of_layer_.size()) {
      place_of_layer_.resize(static_cast<size_t>(layer.layer) + 1, -1);
    }
    place_of_layer_[static_cast<size_t>(layer.layer)] = place;
    for (const int k : layer.parameters) {
      UnitUse& use = of[static_cast<size_t>(k)];
      use.first = std::min(use.first, place);
      use.last = std::max(use.last, place);
    }
  }
  std::vector<std::vector<int>> members;
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const bool joins = !uses_.empty() && of[k].first == of[k].last &&
                       uses_.back().first == of[k].first && uses_.back().last == of[k].last;
    if (!joins) {
      uses_.push_back({of[k].first, of[k].last, 0});
      members.emplace_back();
    }
    UnitUse& unit = uses_.back();
    parameters_[k].unit = static_cast<int>(uses_.size()) - 1;
    parameters_[k].begin = unit.bytes / static_cast<int64_t>(element_);
    // With what pads it in the network's own array: norms are of that, and have the same bits here.
    const bool is_last = k + 1 == parameters_.size();
    parameters_[k].elements =
        (is_last ? network_.trained_elements() : named[k + 1].begin) - named[k].begin;
    unit.bytes += parameters_[k].elements * static_cast<int64_t>(element_);
    members.back().push_back(static_cast<int>(k));
  }
  for (size_t u = 0; u < uses_.size(); ++u) {
    units_.push_back(std::make_unique<Unit>(uses_[u], updater_.state_arrays()));
    units_.back()->parameters = std::move(members[u]);
  }
}

void SpilledTrainer::Host::ChoosePlan(const SpilledTrainerOptions& options) {
  for (int ahead = options.ahead; ahead >= 0; --ahead) {
    plan_ = PlanParameters(uses_, places_, ahead, updater_.state_arrays(),
                           static_cast<int64_t>(kHeapAlignment));
    if (options.memory_bytes == 0 || plan_.bytes <= options.memory_bytes) return;
  }
  throw OutOfMemoryError(
      absl::StrCat(kName, ": network [", network_.name(), "] holds ", plan_.bytes,
                   " bytes of parameters, gradients and state in a step that reads no layer ahead, "
                   "memory_bytes is ",
                   options.memory_bytes),
      MemoryTracker::Global().Snapshot().OwnersToString());
}

void SpilledTrainer::Host::SortByPlace() {
  at_.resize(static_cast<size_t>(places_));
  for (const auto& unit : units_) {
    const auto at = [&](int place) -> Events& { return at_[static_cast<size_t>(place)]; };
    at(unit->use.first).first.push_back(unit.get());
    at(unit->use.last).last.push_back(unit.get());
    at(plan_.Outer(unit->use)).outer.push_back(unit.get());
    at(plan_.Inner(unit->use, places_)).inner.push_back(unit.get());
    at(plan_.StateFrom(unit->use, places_)).state.push_back(unit.get());
  }
}

void SpilledTrainer::Host::FillFile() {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const MemoryOwnerScope owner("spilled parameters");
  const bool is_hosted = network_.is_hosted();
  for (const auto& unit : units_) {
    NDArray whole = Zeros({ElementsOf(*unit)}, network_.dtype(), Place::Heap());
    for (const int k : unit->parameters) {
      NDArray to = ViewIn(whole, k);
      CopyInto(is_hosted ? network_.InitialValue(k)
                         : network_.named_parameters()[static_cast<size_t>(k)].value,
               to);
    }
    unit->kept_value = file_->Write(whole.raw_data(), static_cast<size_t>(unit->use.bytes));
    written_bytes_ += unit->use.bytes;
  }
}

int64_t SpilledTrainer::Host::ElementsOf(const Unit& unit) const {
  return unit.use.bytes / static_cast<int64_t>(element_);
}

NDArray SpilledTrainer::Host::ViewIn(NDArray& whole, int k, int array) const {
  const Parameter& parameter = Views(k);
  const Shape& shape = network_.named_parameters()[static_cast<size_t>(k)].value.shape();
  const int64_t begin =
      array * ElementsOf(*units_[static_cast<size_t>(parameter.unit)]) + parameter.begin;
  return whole.Slice(0, begin, begin + shape.NumElements()).Reshape(shape);
}

NDArray SpilledTrainer::Host::State(int k, int array) const {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const Unit& unit = *units_[static_cast<size_t>(Views(k).unit)];
  NDArray whole =
      Zeros({updater_.state_arrays() * ElementsOf(unit)}, network_.dtype(), Place::Heap());
  if (unit.kept_state.has_value()) file_->Read(unit.kept_state, whole.raw_data());
  return ViewIn(whole, k, array).Dup();
}

void SpilledTrainer::Host::Replace(
    absl::FunctionRef<void(int parameter, NDArray& value)> fill_value,
    absl::FunctionRef<void(int parameter, int array, NDArray& state)> fill_state) {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const int states = updater_.state_arrays();
  Drop();
  try {
    for (const auto& unit : units_) {
      {
        NDArray whole = Zeros({ElementsOf(*unit)}, network_.dtype(), Place::Heap());
        for (const int k : unit->parameters) {
          NDArray value = ViewIn(whole, k);
          fill_value(k, value);
        }
        unit->new_value = file_->Write(whole.raw_data(), static_cast<size_t>(unit->use.bytes));
      }
      if (states == 0) continue;
      NDArray whole = Zeros({states * ElementsOf(*unit)}, network_.dtype(), Place::Heap());
      for (int array = 0; array < states; ++array) {
        for (const int k : unit->parameters) {
          NDArray state = ViewIn(whole, k, array);
          fill_state(k, array, state);
        }
      }
      unit->new_state =
          file_->Write(whole.raw_data(), static_cast<size_t>(states * unit->use.bytes));
    }
  } catch (...) {
    Drop();
    throw;
  }
  TakeNew();
}

void SpilledTrainer::Host::TakeNew() noexcept {
  for (const auto& unit : units_) {
    unit->kept_value = std::move(unit->new_value);
    if (updater_.state_arrays() > 0) unit->kept_state = std::move(unit->new_state);
  }
}

SpilledTrainerStats SpilledTrainer::Host::stats() const {
  SpilledTrainerStats stats;
  for (const UnitUse& use : uses_) stats.parameter_bytes += use.bytes;
  for (const auto& unit : units_)
    stats.state_bytes += static_cast<int64_t>(unit->kept_state.bytes());
  stats.step_bytes = plan_.bytes;
  stats.inference_bytes = plan_.inference_bytes;
  stats.ahead = plan_.ahead;
  stats.read_bytes = read_bytes_;
  stats.written_bytes = written_bytes_;
  stats.stall_seconds = stall_seconds_;
  return stats;
}

NDArray SpilledTrainer::Host::Value(int k) const {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const Unit& unit = *units_[static_cast<size_t>(Views(k).unit)];
  NDArray whole = Empty({ElementsOf(unit)}, network_.dtype(), Place::Heap());
  file_->Read(unit.kept_value, whole.raw_data());
  return ViewIn(whole, k).Dup();
}

void SpilledTrainer::Host::ChangeUnitOf(int k, absl::FunctionRef<void(NDArray&)> change) {
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  Unit& unit = *units_[static_cast<size_t>(Views(k).unit)];
  NDArray whole = Empty({ElementsOf(unit)}, network_.dtype(), Place::Heap());
  file_->Read(unit.kept_value, whole.raw_data());
  NDArray value = ViewIn(whole, k);
  change(value);
  unit.kept_value = file_->Write(whole.raw_data(), static_cast<size_t>(unit.use.bytes));
}

void SpilledTrainer::Host::Commit() {
  if (failure_ != nullptr) {
    const std::exception_ptr failure = std::exchange(failure_, nullptr);
    Drop();
    std::rethrow_exception(failure);
  }
  if (!complete_)
    ThrowFailedPrecondition(
        absl::StrCat(kName, ": a step without a pass over network [", network_.name(), "]"));
  TakeNew();
  complete_ = false;
  updater_.Advance();
}

void SpilledTrainer::Host::KeepBeside() {
  if (!network_.beside().is_defined()) return;
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const NoGradientScope constants;
  if (!beside_before_.is_defined()) {
    beside_before_ = network_.beside().CopyTo(Place::Heap());
  } else {
    CopyInto(network_.beside(), beside_before_);
  }
}

void SpilledTrainer::Host::RestoreBeside() {
  if (!beside_before_.is_defined()) return;
  const NoGradientScope constants;
  NDArray beside = network_.beside();
  CopyInto(beside_before_, beside);
}

void SpilledTrainer::Host::Drop() noexcept {
  for (const auto& unit : units_) {
    unit->new_value.Reset();
    unit->new_state.Reset();
    unit->kept_gradient.Reset();
  }
  complete_ = false;
  failure_ = nullptr;
}

}  // namespace tidepool::nn
