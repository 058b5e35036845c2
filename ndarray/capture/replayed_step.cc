#include "tidepool/ndarray/capture/replayed_step.h"

#include <cxxabi.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/workspace/thread_state.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/device_transfer.h"

namespace tidepool {

namespace {

const WorkspaceCore& CheckedCore(Workspace& workspace, const char* who) {
  const WorkspaceCore& core = *workspace.core();
  if (core.passes_through()) {
    ThrowUnimplemented(absl::StrCat(who, ": graphs need a workspace; [", workspace.id(),
                                    "] is switched off (workspace_mode none)"));
  }
  return core;
}

}  // namespace

ReplayedStep::ReplayedStep(Workspace& workspace, const char* who)
    : workspace_(&workspace), who_(who) {
  const WorkspaceCore& core = CheckedCore(workspace, who);
  captured_ = NewCapturedStep(core.memory_device());
  if (captured_ == nullptr) {
    ThrowUnimplemented(absl::StrCat(who, ": graphs: steps on ", DeviceName(core.memory_device()),
                                    " cannot be captured; a CUDA device's can"));
  }
}

ReplayedStep::~ReplayedStep() { ForgetQuietly(); }

void ReplayedStep::SetWorkspace(Workspace& workspace) {
  if (workspace_ == &workspace) return;
  CheckedCore(workspace, who_);
  Forget();
  workspace_ = &workspace;
  steady_ = false;
}

void ReplayedStep::Forget() {
  if (!std::exchange(held_, false)) return;
  steady_ = false;  // others may have changed the plan
  const absl::Cleanup leave = [this] { workspace_->core()->LeaveFrame(/*failed=*/false); };
  // Before its memory may go.
  AskProvider(who_, workspace_->core()->memory_device(), [this] { captured_->Forget(); });
}

void ReplayedStep::ForgetQuietly() noexcept {
  try {
    held_ ? Forget() : captured_->Forget();
  } catch (...) {
    // The device has failed, or is lost: there is nothing under way.
  }
}

ReplayedStep::Marks ReplayedStep::MarksNow() const {
  const WorkspaceCore& core = *workspace_->core();
  const WorkspaceCounters& s = core.counters;
  return {s.plans, s.plans_improved, s.plan_switches, s.misses, s.spills, s.relocations, s.size};
}

// Within a handler.
void ReplayedStep::Failed() {
  ++stats_.failures;
  ++failures_in_a_row_;
  try {
    throw;
  } catch (const Error& error) {
    stats_.last_failure = error.message();
  } catch (const abi::__forced_unwind&) {
    ForgetQuietly();
    throw;  // the thread is cancelled
  } catch (...) {
    stats_.last_failure = DescribeException();
  }
  ForgetQuietly();
}

bool ReplayedStep::TryCapture(absl::FunctionRef<void()> step) {
  try {
    WorkspaceScope scope(*workspace_);
    const Marks before = MarksNow();
    captured_->Capture(step);
    if (MarksNow() != before) {
      ThrowFailedPrecondition(absl::StrCat(who_,
                                           ": the step did not follow the plan of workspace [",
                                           workspace_->id(), "], so its memory would not stay"));
    }
    stats_.nodes = captured_->nodes();
    workspace_->core()->EnterFrame(CurrentThreadToken());  // left by Forget()
  } catch (...) {
    Failed();
    return false;
  }
  held_ = true;
  held_generation_ = workspace_->generation();
  held_bytes_ = workspace_->bytes_this_cycle();
  ++stats_.captures;
  return true;
}

bool ReplayedStep::TryLaunch() {
  try {
    captured_->Launch();
  } catch (...) {
    Failed();
    return false;
  }
  failures_in_a_row_ = 0;
  ++stats_.launches;
  return true;
}

void ReplayedStep::Run(absl::Span<const NDArray* const> reads, absl::Span<NDArray* const> writes,
                       absl::FunctionRef<void()> step) {
  CheckNotLost(workspace_->core()->memory_device(), who_);
  seen_.clear();
  PinScope pins;  // as for an operator: who closes one meanwhile leaves its bytes to this call
  for (const NDArray* array : reads) {
    if (array != nullptr) pins.Pin(array->buffer().get());
  }
  for (const NDArray* array : writes) {
    if (array != nullptr) pins.Pin(array->buffer().get());
  }
  pins.Publish();
  const auto look = [this](const NDArray* array, const char* operand) {
    if (array == nullptr || !array->is_defined()) return;
    array->CheckAlive(who_, operand);
    seen_.push_back({array->raw_data(), array->shape(), array->dtype()});
  };
  for (const NDArray* array : reads) look(array, "reads");
  for (const NDArray* array : writes) look(array, "writes");
  const bool same = seen_ == operands_;
  if (!same) {
    failures_in_a_row_ = 0;
    steady_ = false;
  }
  if (held_ && (!same || workspace_->generation() != held_generation_ ||
                workspace_->bytes_this_cycle() != held_bytes_)) {
    Forget();
  }
  std::swap(operands_, seen_);
  // What the host has newer goes to the device; what it has of the results is old from here on.
  if (held_ || (steady_ && failures_in_a_row_ < kMostFailures)) {
    PrepareMirrors(who_, reads, writes);
    if ((held_ || TryCapture(step)) && TryLaunch()) {
      for (NDArray* array : writes) {
        if (array != nullptr && array->is_defined()) array->MarkWritten();
      }
      return;
    }
  }
  const Marks before = MarksNow();
  {
    WorkspaceScope scope(*workspace_);
    step();
  }
  steady_ = MarksNow() == before;
  ++stats_.done_as_it_is;
}

}  // namespace tidepool
