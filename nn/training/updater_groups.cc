// Updater: which elements are treated in which way, and which ones it keeps.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/training/updater.h"

namespace tidepool::nn {
namespace {

std::string RangeOf(const ParameterGroup& group) {
  return absl::StrCat("[", group.begin, ", ", group.end, ")");
}

bool AreAlike(const ParameterGroup& a, const ParameterGroup& b) {
  return a.rate == b.rate && a.decays == b.decays && a.frozen == b.frozen;
}

// Every element in one group, in order; empty ones are left out.
std::vector<ParameterGroup> Complete(const std::vector<ParameterGroup>& groups, int64_t elements) {
  std::vector<ParameterGroup> all;
  int64_t next = 0;
  const auto fill_to = [&](int64_t end) {
    if (end > next) all.push_back({.begin = next, .end = end});
  };
  for (const ParameterGroup& group : groups) {
    if (group.begin < next || group.end < group.begin || group.end > elements) {
      ThrowInvalidArgument(absl::StrCat("updater: group ", RangeOf(group), " behind element ", next,
                                        " of ", elements,
                                        ", expected ascending ranges that lie apart and inside"));
    }
    if (!(group.rate >= 0) || std::isinf(group.rate)) {
      ThrowInvalidArgument(absl::StrCat("updater: group ", RangeOf(group), " has rate ", group.rate,
                                        ", expected 0 or more"));
    }
    fill_to(group.begin);
    if (group.end > group.begin) all.push_back(group);
    next = group.end;
  }
  fill_to(elements);
  return all;
}

NDArray Flat(const NDArray& array) {
  return array.rank() == 1 ? array : array.Reshape({array.NumElements()});
}

}  // namespace

void Updater::SetGroups(std::vector<ParameterGroup> groups) {
  std::vector<ParameterGroup> all;
  for (const ParameterGroup& group : Complete(groups, elements_)) {
    const bool joins = !all.empty() && AreAlike(all.back(), group) &&
                       config_.clipping.kind != ClippingKind::kNormOfEach;
    if (joins) {
      all.back().end = group.end;
    } else {
      all.push_back(group);
    }
  }
  std::vector<ParameterGroup> runs;
  for (const ParameterGroup& group : all) {
    if (!group.frozen) runs.push_back(group);
  }
  is_one_run_ =
      elements_ == 0 || (runs.size() == 1 && runs[0].begin == 0 && runs[0].end == elements_);
  if (elements_ == 0) runs = {ParameterGroup()};
  runs_ = std::move(runs);
  groups_ = std::move(all);
  numbers_ = NDArray();
  CutRuns();
}

std::optional<ParameterGroup> Updater::GroupOf(int64_t begin, int64_t end, int64_t padded_end,
                                               bool exactly) const {
  const auto run =
      std::upper_bound(runs_.begin(), runs_.end(), begin,
                       [](int64_t at, const ParameterGroup& other) { return at < other.end; });
  // Runs are what is updated.
  if (run == runs_.end() || run->begin >= end)
    return ParameterGroup{.begin = begin, .end = end, .frozen = true};
  const bool fits = exactly ? run->begin == begin && (run->end == end || run->end == padded_end)
                            : run->begin <= begin && run->end >= end;
  return fits ? std::optional(*run) : std::nullopt;
}

void Updater::CheckKeepsAll(const char* who) const {
  if (keeps_all_) return;
  ThrowFailedPrecondition(std::string(who) +
                          ": the updater keeps a rank's part of its state, as a DistributedTrainer "
                          "with shard_updater or "
                          "shard_parameters has it; expected that DistributedTrainer's own Step, "
                          "Fit and SaveLatest, or a "
                          "trainer made anew");
}

// To what is kept, and where that lies in the state.
void Updater::CutRuns() {
  state_begins_.clear();
  if (keeps_all_) {
    for (const ParameterGroup& run : runs_) state_begins_.push_back(run.begin);
    return;
  }
  std::vector<ParameterGroup> cut;
  int64_t before = 0;  // elements of the state
  size_t run = 0;
  for (const auto& [begin, end] : kept_) {
    while (run < runs_.size() && runs_[run].end <= begin) ++run;
    for (size_t r = run; r < runs_.size() && runs_[r].begin < end; ++r) {
      ParameterGroup part = runs_[r];
      part.begin = std::max(part.begin, begin);
      part.end = std::min(part.end, end);
      state_begins_.push_back(before + part.begin - begin);
      cut.push_back(part);
    }
    before += end - begin;
  }
  runs_ = std::move(cut);
  is_one_run_ = false;
}

void Updater::KeepOnly(std::vector<std::pair<int64_t, int64_t>> ranges) {
  if (!keeps_all_) ThrowFailedPrecondition("updater: KeepOnly a second time");
  if (config_.clipping.kind == ClippingKind::kNormOfEach) {
    ThrowUnimplemented(
        "updater: clipping by each parameter's norm, parts of which are others', expected another "
        "clipping");
  }
  int64_t next = 0, kept = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin < next || end < begin || end > elements_) {
      ThrowInvalidArgument(absl::StrCat("updater: range [", begin, ", ", end, ") behind element ",
                                        next, " of ", elements_,
                                        ", expected ascending ranges that lie apart and inside"));
    }
    next = end;
    kept += end - begin;
  }
  const MemoryOwnerScope owner("updater");
  const HandlesOwnScope handles;
  NDArray parts[2];
  const NDArray* const whole[2] = {&first_, &second_};
  for (int i = 0; i < state_arrays(); ++i) {
    if (!whole[i]->is_defined()) {
      parts[i] = Zeros({kept}, dtype_, Place::On(device_));
      continue;
    }
    parts[i] = Empty({kept}, dtype_, Place::On(device_));
    int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin == end) continue;
      NDArray part = parts[i].Slice(0, at, at + end - begin);
      CopyInto(Flat(*whole[i]).Slice(0, begin, end), part);
      at += end - begin;
    }
  }
  first_ = std::move(parts[0]);
  second_ = std::move(parts[1]);
  kept_ = std::move(ranges);
  keeps_all_ = false;
  numbers_ = NDArray();
  CutRuns();
}

}  // namespace tidepool::nn
