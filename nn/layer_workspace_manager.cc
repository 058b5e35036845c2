#include "tidepool/nn/layer_workspace_manager.h"

#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool::nn {

const char* ArrayTypeName(ArrayType type) {
  switch (type) {
    case ArrayType::kInput:
      return "input";
    case ArrayType::kActivations:
      return "activations";
    case ArrayType::kActivationGradients:
      return "activation gradients";
    case ArrayType::kForwardWorkingMemory:
      return "forward working memory";
    case ArrayType::kBackwardWorkingMemory:
      return "backward working memory";
    case ArrayType::kRecurrentForwardLoop:
      return "recurrent forward loop";
    case ArrayType::kRecurrentBackwardLoop:
      return "recurrent backward loop";
    case ArrayType::kUpdaterWorkingMemory:
      return "updater working memory";
    case ArrayType::kForwardCache:
      return "forward cache";
  }
  return "";
}

// What kSeparate has beside the one workspace.
struct LayerWorkspaceManager::Separate final : BackwardPlacement {
  // One of those that are used in turn. Its cycle begins and ends apart from scopes: those of two
  // layers overlap.
  struct Turn {
    std::unique_ptr<Workspace> workspace;
    bool is_open = false;
    bool is_needed = false;    // of a gradient's: something in it is
    BufferHandle value, mask;  // of activations: what was made for the layers behind
  };

  Separate(Workspace& main, Phase phase, const WorkspaceConfig& others)
      : main(main),
        phase(phase),
        config(others),
        working(absl::StrCat(main.id(), " working"), others, main.device()) {}

  Workspace& main;
  const Phase phase;
  const WorkspaceConfig config;
  Workspace working;
  std::vector<Turn> turns;
  Turn* turn = nullptr;      // of the layer under way; null: none yet
  bool is_backward = false;  // a part of the backward pass is under way
  GradientTape* tape = nullptr;
  std::vector<LayerUse>* uses = nullptr;
  int part = 0;  // of the backward pass; what was requested before it
  size_t working_before = 0, turn_before = 0;

  // Of the layer under way, the last one the innermost.
  std::optional<WorkspaceScope> working_scope;
  std::optional<BorrowScope> results;
  std::optional<KernelScratchScope> scratch;

  // What has workspaces of its own, in turn; the others' are the one of the step or request.
  ArrayType TypeOfTurns() const {
    return phase == Phase::kTraining ? ArrayType::kActivationGradients : ArrayType::kActivations;
  }
  // Where arrays of that type are made now.
  Workspace& WhereMade(ArrayType type) {
    switch (type) {
      case ArrayType::kForwardWorkingMemory:
      case ArrayType::kBackwardWorkingMemory:
      case ArrayType::kRecurrentForwardLoop:
      case ArrayType::kRecurrentBackwardLoop:
        return working;
      case ArrayType::kActivations:
      case ArrayType::kActivationGradients:
        return type == TypeOfTurns() && turn != nullptr ? *turn->workspace : main;
      case ArrayType::kInput:
      case ArrayType::kUpdaterWorkingMemory:
      case ArrayType::kForwardCache:
        break;
    }
    return main;
  }
  // The same, of which a part of the backward pass has one when it first makes something there.
  Workspace& WhereToMake(ArrayType type) {
    if (is_backward && type == ArrayType::kActivationGradients) OthersTurn();
    return WhereMade(type);
  }
  bool IsOfTurns(const BufferOwner* owner) const {
    for (const Turn& one : turns) {
      if (owner == one.workspace->core()) return true;
    }
    return false;
  }
  // Whether what is of that owner may be an array of that type. Workspaces of others and the heap are
  // no type's place.
  bool MayBeIn(ArrayType type, const BufferOwner* owner) {
    if (owner == WhereMade(type).core()) return true;
    if (owner == working.core()) return false;
    if (IsOfTurns(owner)) return type == TypeOfTurns();              // that of another layer
    return owner != main.core() || type == ArrayType::kActivations;  // a view of an input is there
  }
  // Of the owners that are no place of some type.
  const char* WhatIsIn(const BufferOwner* owner) const {
    if (owner == working.core()) return "working memory, which ends with the layer";
    if (owner != main.core()) return ArrayTypeName(TypeOfTurns());
    return phase == Phase::kTraining ? "inputs and activations" : "inputs";
  }

  void CloseTurn(Turn& closed, bool failed) noexcept {
    closed.value.Reset();
    closed.mask.Reset();
    closed.is_open = false;
    closed.workspace->core()->LeaveFrame(failed);
  }
  // Those that nothing is left in.
  void CloseEmptyTurns() noexcept {
    for (Turn& open : turns) {
      if (open.is_open && !IsNeeded(open)) CloseTurn(open, /*failed=*/false);
    }
  }
  bool IsNeeded(const Turn& open) const {
    if (phase == Phase::kTraining) return open.is_needed;
    const auto is_held = [](const BufferHandle& made) {
      return made && made->references.load(std::memory_order_acquire) > 1;
    };
    return is_held(open.value) || is_held(open.mask);
  }
  Turn& NextTurn() {
    for (Turn& next : turns) {
      if (next.is_open) continue;
      Open(next);
      return next;
    }
    const char* const what = phase == Phase::kTraining ? "gradients" : "activations";
    turns.push_back({std::make_unique<Workspace>(
        absl::StrCat(main.id(), " ", what, " ", turns.size() + 1), config, main.device())});
    Open(turns.back());
    return turns.back();
  }
  static void Open(Turn& next) {
    next.workspace->core()->EnterFrame(CurrentThreadToken());
    next.is_open = true;
  }

  void BeginLayer() {
    is_backward = false;
    if (phase == Phase::kInference) {
      CloseEmptyTurns();
      turn = nullptr;
      turn = &NextTurn();
    }
    working_scope.emplace(working);
    scratch.emplace(&working);
    results.emplace(phase == Phase::kInference ? *turn->workspace : main);
  }
  void EndLayer() noexcept {
    results.reset();
    scratch.reset();
    working_scope.reset();
  }
  void End(bool failed) noexcept {
    EndLayer();
    is_backward = false;
    turn = nullptr;
    for (auto open = turns.rbegin(); open != turns.rend(); ++open) {
      if (open->is_open) CloseTurn(*open, failed);
    }
  }

  // ---- BackwardPlacement ----

  void EnterPart(int entered) override {
    NotePart();
    EndLayer();
    turn = nullptr;
    CloseEmptyTurns();
    for (Turn& other : turns) other.is_needed = false;
    working_scope.emplace(working);
    scratch.emplace(&working);
    part = entered;
    is_backward = true;
    working_before = 0;
  }
  void PlaceResults(bool leaves) override {
    if (leaves == results.has_value()) return;
    results.reset();
    if (leaves) results.emplace(*OthersTurn().workspace);
  }
  bool IsOfPart(const NDArray& gradient) override {
    const BufferOwner* const owner = gradient.buffer()->owner;
    if (owner == working.core()) return true;
    for (Turn& other : turns) other.is_needed = other.is_needed || owner == other.workspace->core();
    return false;
  }
  Place PlaceOfOthers() override {
    OthersTurn().is_needed = true;
    return Place::In(*turn->workspace);
  }

  Turn& OthersTurn() {
    if (turn == nullptr) {
      turn = &NextTurn();
      turn_before = 0;
    }
    return *turn;
  }
  void NotePart() const {
    if (uses == nullptr || !working_scope.has_value() || static_cast<size_t>(part) >= uses->size())
      return;
    LayerUse& use = (*uses)[static_cast<size_t>(part)];
    use.bytes[static_cast<int>(ArrayType::kBackwardWorkingMemory)] +=
        static_cast<int64_t>(working.bytes_this_cycle());
    if (turn == nullptr) return;
    use.bytes[static_cast<int>(ArrayType::kActivationGradients)] +=
        static_cast<int64_t>(turn->workspace->bytes_this_cycle());
  }
};

LayerWorkspaceManager::LayerWorkspaceManager() = default;
LayerWorkspaceManager::~LayerWorkspaceManager() = default;
LayerWorkspaceManager::LayerWorkspaceManager(LayerWorkspaceManager&&) noexcept = default;
LayerWorkspaceManager& LayerWorkspaceManager::operator=(LayerWorkspaceManager&&) noexcept = default;

LayerWorkspaceManager LayerWorkspaceManager::NoWorkspaces(Device device) {
  LayerWorkspaceManager manager;
  manager.device_ = device;
  return manager;
}

LayerWorkspaceManager::LayerWorkspaceManager(Workspace& main, WorkspaceMode mode, Phase phase,
                                             const WorkspaceConfig& others)
    : main_(mode == WorkspaceMode::kNone ? nullptr : &main), device_(main.device()), mode_(mode) {
  if (mode != WorkspaceMode::kSeparate) return;
  WorkspaceConfig beside = others;
  beside.initial_size = 0;
  separate_ = std::make_unique<Separate>(main, phase, beside);
}

Place LayerWorkspaceManager::PlaceOf(ArrayType type) const {
  if (main_ == nullptr) return Place::On(device_);
  if (separate_ == nullptr) return Place::In(*main_);
  return Place::In(separate_->WhereToMake(type));
}

NDArray LayerWorkspaceManager::Create(ArrayType type, const Shape& shape, DType dtype) const {
  return NDArray(shape, dtype, PlaceOf(type));
}

NDArray LayerWorkspaceManager::LeverageTo(ArrayType type, const NDArray& array) const {
  array.CheckAlive("leverage_to", ArrayTypeName(type));
  if (!array.IsAttached()) return array;
  if (separate_ == nullptr) {
    if (main_ != nullptr && array.buffer()->owner == main_->core()) return array;
    return Dup(type, array);
  }
  return array.buffer()->owner == separate_->WhereToMake(type).core() ? array : Dup(type, array);
}

NDArray LayerWorkspaceManager::Dup(ArrayType type, const NDArray& array) const {
  array.CheckAlive("dup", ArrayTypeName(type));
  return array.CopyTo(PlaceOf(type));
}

void LayerWorkspaceManager::Validate(ArrayType type, const NDArray& array,
                                     absl::string_view layer) const {
  if (!array.is_defined() || !array.buffer()) return;
  const Buffer& buffer = *array.buffer().get();
  if (!buffer.IsAlive()) {
    const bool is_closed = buffer.closed.load(std::memory_order_relaxed) != Buffer::kNotClosed;
    const std::string id = is_closed ? "" : buffer.owner->WorkspaceId();
    ThrowFailedPrecondition(
        absl::StrCat("layer \"", layer, "\": its ", ArrayTypeName(type), " are gone: they were in ",
                     id.empty() ? std::string("an array that was closed")
                                : absl::StrCat("workspace [", id, "], whose cycle has ended"),
                     ", expected ",
                     main_ == nullptr ? std::string("the heap")
                                      : absl::StrCat("workspace [", main_->id(), "] or the heap")));
  }
  if (separate_ == nullptr || separate_->MayBeIn(type, buffer.owner)) return;
  ThrowFailedPrecondition(
      absl::StrCat("layer \"", layer, "\": its ", ArrayTypeName(type), " are in workspace [",
                   buffer.owner->WorkspaceId(), "], the place of ",
                   separate_->WhatIsIn(buffer.owner), "; expected ",
                   type == ArrayType::kActivations
                       ? std::string("where arrays are made in its call without a place")
                       : absl::StrCat("workspace [", separate_->WhereMade(type).id(), "]")));
}

std::vector<const Workspace*> LayerWorkspaceManager::workspaces() const {
  std::vector<const Workspace*> all;
  if (main_ != nullptr) all.push_back(main_);
  if (separate_ == nullptr) return all;
  all.push_back(&separate_->working);
  for (const Separate::Turn& turn : separate_->turns) all.push_back(turn.workspace.get());
  return all;
}

void LayerWorkspaceManager::Trim() {
  if (separate_ == nullptr) return;
  separate_->working.Trim();
  for (const Separate::Turn& turn : separate_->turns) turn.workspace->Trim();
}

// ---- for the executor ----

LayerWorkspaceManager::Call::Call(LayerWorkspaceManager& manager, GradientTape* tape)
    : manager_(manager), exceptions_(std::uncaught_exceptions()) {
  if (tape != nullptr) tape->set_placement(manager.separate_.get());
  if (manager.separate_ == nullptr) return;
  manager.separate_->tape = tape;
  manager.separate_->uses = manager.uses_;
}

LayerWorkspaceManager::Call::~Call() {
  if (manager_.separate_ == nullptr) return;
  manager_.separate_->NotePart();
  manager_.separate_->End(std::uncaught_exceptions() > exceptions_);
}

LayerWorkspaceManager::Layer::Layer(LayerWorkspaceManager* manager, int number,
                                    absl::string_view name)
    : manager_(manager), name_(name) {
  if (manager_ == nullptr || manager_->separate_ == nullptr) return;
  Separate& separate = *manager_->separate_;
  if (separate.tape != nullptr) separate.tape->set_part(number);
  separate.BeginLayer();
  if (manager_->uses_ == nullptr) return;
  if (manager_->uses_->size() <= static_cast<size_t>(number))
    manager_->uses_->resize(static_cast<size_t>(number) + 1);
  (*manager_->uses_)[static_cast<size_t>(number)].layer = std::string(name);
  separate.part = number;
  separate.turn_before = separate.phase == Phase::kInference ? 0 : separate.main.bytes_this_cycle();
}

LayerWorkspaceManager::Layer::~Layer() {
  if (manager_ == nullptr || manager_->separate_ == nullptr) return;
  manager_->separate_->EndLayer();
  if (manager_->separate_->tape != nullptr) manager_->separate_->tape->set_part(0);
}

void LayerWorkspaceManager::Layer::Finish(const NDArray& output, const NDArray& mask) {
  if (manager_ == nullptr) return;
  manager_->Validate(ArrayType::kActivations, output, name_);
  if (manager_->separate_ == nullptr) return;
  if (Separate::Turn* const turn = manager_->separate_->turn; turn != nullptr) {
    // One that is a view of an input lives where that does.
    const auto keep = [&](const NDArray& made, BufferHandle& as) {
      if (made.buffer() && made.buffer()->owner == turn->workspace->core()) as = made.buffer();
    };
    keep(output, turn->value);
    keep(mask, turn->mask);
  }
  if (manager_->uses_ == nullptr) return;
  const Separate& separate = *manager_->separate_;
  LayerUse& use = (*manager_->uses_)[static_cast<size_t>(separate.part)];
  const Workspace& made_in =
      separate.phase == Phase::kInference ? *separate.turn->workspace : separate.main;
  use.bytes[static_cast<int>(ArrayType::kActivations)] +=
      static_cast<int64_t>(made_in.bytes_this_cycle() - separate.turn_before);
  use.bytes[static_cast<int>(ArrayType::kForwardWorkingMemory)] +=
      static_cast<int64_t>(separate.working.bytes_this_cycle());
}

}  // namespace tidepool::nn
