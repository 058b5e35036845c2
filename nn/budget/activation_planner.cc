#include "tidepool/nn/budget/activation_planner.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// What a block of layers does.
enum class Way : uint8_t {
  kKeep,
  kSpill,
  kRecompute,  // as one segment
  kJoin,       // of the segment of the block before, where that recomputes
  kRecomputeSpilled,
  kRemake,  // where there is something
  kSlices,  // as kRecompute, in the smallest slices there are, where its layers can
};

std::vector<Way> WaysOf(BudgetStrategy strategy) {
  switch (strategy) {
    case BudgetStrategy::kAuto:
      return {Way::kKeep, Way::kSpill, Way::kRecompute, Way::kJoin, Way::kRecomputeSpilled};
    case BudgetStrategy::kSpill:
      return {Way::kKeep, Way::kSpill};
    case BudgetStrategy::kRecompute:
      return {Way::kKeep, Way::kRecompute, Way::kJoin};
    case BudgetStrategy::kNone:
      return {Way::kKeep};
  }
  return {};
}

constexpr int kMostPlans = 20'000;         // that are looked at exhaustively
constexpr int kMostSingle = 48;            // layers up to which a block is one
constexpr int kBlocks = 24;                // of more
constexpr int kRungs = 16;                 // of the ladder of peaks
constexpr int64_t kMostWork = 90'000'000;  // of all evaluations, in layers and arrays

bool HasFewPlans(int layers, size_t ways) {
  if (layers > kMostSingle) return false;
  int64_t plans = 1;
  for (int i = 0; i < layers; ++i) {
    plans *= static_cast<int64_t>(ways);
    if (plans > kMostPlans) return false;
  }
  return true;
}

class Search {
 public:
  Search(const ActivationProblem& problem, BudgetStrategy strategy)
      : problem_(problem),
        ways_(WaysOf(strategy)),
        layers_(static_cast<int>(problem.layers.size())),
        can_remake_(problem.layers.size(), false) {
    const bool computes =
        strategy == BudgetStrategy::kAuto || strategy == BudgetStrategy::kRecompute;
    for (const ActivationArray& array : problem.arrays) {
      if (computes && array.can_remake) can_remake_[static_cast<size_t>(array.made)] = true;
    }
    if (std::find(can_remake_.begin(), can_remake_.end(), true) != can_remake_.end())
      ways_.push_back(Way::kRemake);
    slices_ = computes && !problem.slices.empty();
    const int blocks = layers_ <= kMostSingle ? layers_ : kBlocks;
    for (int b = 0; b <= blocks; ++b)
      block_begins_.push_back(static_cast<int>(int64_t{layers_} * b / blocks));
    const int64_t work = 3 * layers_ + 4 * static_cast<int64_t>(problem.arrays.size());
    left_ = kMostWork / std::max<int64_t>(work, 1);
  }

  std::vector<PlannedActivations> Find() {
    AddUniform();
    if (HasFewPlans(layers_, ways_.size())) {
      AddAll();
    } else {
      if (slices_) ways_.push_back(Way::kSlices);
      Descend();
    }
    KeepBest();
    AddWindows();
    KeepBest();
    return std::move(found_);
  }

 private:
  bool CanSlice(int begin, int layers) const {
    const int chain = problem_.layers[static_cast<size_t>(begin)].chain;
    for (int i = begin; i < begin + layers; ++i) {
      if (problem_.layers[static_cast<size_t>(i)].chain != chain) return false;
    }
    return chain >= 0;
  }

  // A segment that computes nothing is kept.
  void AddSegment(ActivationPlan& plan, int begin, int layers, Retention retention) const {
    bool computes = false;
    for (int i = begin; i < begin + layers; ++i)
      computes = computes || !problem_.layers[static_cast<size_t>(i)].is_view;
    if (!computes && retention != Retention::kSpill) retention = Retention::kKeep;
    if (retention == Retention::kRemake && !can_remake_[static_cast<size_t>(begin)])
      retention = Retention::kKeep;
    plan.segments.push_back({.layers = layers, .retention = retention});
  }

  ActivationPlan PlanOf(const std::vector<Way>& ways) const {
    ActivationPlan plan;
    for (size_t b = 0; b < ways.size();) {
      const int begin = block_begins_[b];
      if (ways[b] == Way::kKeep || ways[b] == Way::kSpill || ways[b] == Way::kRemake) {
        const Retention retention = ways[b] == Way::kKeep    ? Retention::kKeep
                                    : ways[b] == Way::kSpill ? Retention::kSpill
                                                             : Retention::kRemake;
        for (int i = begin; i < block_begins_[b + 1]; ++i) AddSegment(plan, i, 1, retention);
        ++b;
        continue;
      }
      const Retention retention =
          ways[b] == Way::kRecomputeSpilled ? Retention::kRecomputeSpilled : Retention::kRecompute;
      const bool in_slices = ways[b] == Way::kSlices;
      do ++b;
      while (b < ways.size() && ways[b] == Way::kJoin);
      AddSegment(plan, begin, block_begins_[b] - begin, retention);
      if (in_slices && plan.segments.back().recomputes() &&
          CanSlice(begin, block_begins_[b] - begin))
        plan.segments.back().slice = problem_.slices.front().examples;
    }
    return plan;
  }

  // With its segments as they are, and in slices of each size where they can.
  void Add(ActivationPlan plan) {
    for (size_t k = 0; slices_ && k < problem_.slices.size(); ++k) {
      ActivationPlan sliced = plan;
      int begin = 0;
      bool is_new = false;
      for (ActivationSegment& segment : sliced.segments) {
        if (segment.recomputes() && CanSlice(begin, segment.layers)) {
          is_new = is_new || segment.slice != problem_.slices[k].examples;
          segment.slice = problem_.slices[k].examples;
        }
        begin += segment.layers;
      }
      if (is_new) AddOne(std::move(sliced));
    }
    AddOne(std::move(plan));
  }
  void AddOne(ActivationPlan plan) {
    --left_;
    ActivationCost cost = CostOf(problem_, plan);
    found_.push_back({std::move(plan), cost});
    if (found_.size() > 4096) KeepBest();
  }

  // Those that none beats.
  void KeepBest() {
    std::stable_sort(
        found_.begin(), found_.end(), [](const PlannedActivations& a, const PlannedActivations& b) {
          return a.cost.seconds != b.cost.seconds ? a.cost.seconds < b.cost.seconds
                                                  : a.cost.peak_bytes < b.cost.peak_bytes;
        });
    int64_t peak = std::numeric_limits<int64_t>::max();
    std::vector<PlannedActivations> best;
    for (PlannedActivations& one : found_) {
      if (one.cost.peak_bytes >= peak) continue;
      peak = one.cost.peak_bytes;
      best.push_back(std::move(one));
    }
    found_ = std::move(best);
  }

  bool Has(Way way) const { return std::find(ways_.begin(), ways_.end(), way) != ways_.end(); }

  // Segments of equal length over all layers, and over the first ones, whose arrays wait longest.
  void AddUniform() {
    std::vector<Retention> retentions = {Retention::kKeep};
    if (Has(Way::kSpill)) retentions.push_back(Retention::kSpill);
    if (Has(Way::kRecompute)) retentions.push_back(Retention::kRecompute);
    if (Has(Way::kRecomputeSpilled)) retentions.push_back(Retention::kRecomputeSpilled);
    if (Has(Way::kRemake)) retentions.push_back(Retention::kRemake);
    std::vector<int> ends;
    for (int k = 1; k <= 8; ++k) {
      const int end = static_cast<int>(int64_t{layers_} * k / 8);
      if (end > 0 && (ends.empty() || ends.back() != end)) ends.push_back(end);
    }
    for (const Retention retention : retentions) {
      const bool recomputes =
          retention == Retention::kRecompute || retention == Retention::kRecomputeSpilled;
      for (int length = 1; length <= (recomputes ? layers_ : 1);
           length = length < 4 ? length + 1 : length + length / 2) {
        for (const int end : ends) {
          if (end != layers_ && retention == Retention::kKeep) continue;
          ActivationPlan plan;
          for (int i = 0; i < end; i += length)
            AddSegment(plan, i, std::min(length, end - i), retention);
          for (int i = end; i < layers_; ++i) AddSegment(plan, i, 1, Retention::kKeep);
          Add(std::move(plan));
        }
      }
    }
  }

  void AddAll() {
    std::vector<size_t> at(static_cast<size_t>(layers_), 0);
    std::vector<Way> ways(at.size());
    for (;;) {
      bool is_new = true;  // a join behind what is kept is a recomputation, which is there anyway
      for (size_t i = 0; i < at.size(); ++i) {
        ways[i] = ways_[at[i]];
        const bool follows =
            i > 0 && (ways[i - 1] == Way::kRecompute || ways[i - 1] == Way::kJoin ||
                      ways[i - 1] == Way::kRecomputeSpilled);
        is_new = is_new && (ways[i] != Way::kJoin || follows);
      }
      if (is_new) Add(PlanOf(ways));
      size_t digit = 0;
      while (digit < at.size() && ++at[digit] == ways_.size()) at[digit++] = 0;
      if (digit == at.size()) return;
    }
  }

  struct Tried {
    ActivationCost cost;
    double excess = 0;  // of the bytes beyond the target, over all ticks
  };
  Tried Try(const std::vector<Way>& ways, int64_t target) {
    --left_;
    Tried tried;
    tried.cost = CostOf(problem_, PlanOf(ways), &alive_);
    for (const int64_t bytes : alive_)
      tried.excess += static_cast<double>(std::max<int64_t>(0, bytes - target));
    return tried;
  }

  // From each pure choice down a ladder of peaks: the change of a block that takes most off what is too much, for its time. And once
  // more whatever the time, as the least memory there is hangs on no clock.
  void Descend() {
    KeepBest();
    const int64_t most = found_.front().cost.peak_bytes;
    const int64_t all = left_;
    std::vector<Way> starts = {Way::kKeep};
    if (Has(Way::kSpill)) starts.push_back(Way::kSpill);
    if (Has(Way::kRecompute)) starts.push_back(Way::kRecompute);
    if (Has(Way::kRemake)) starts.push_back(Way::kRemake);
    int64_t spent_by = all;
    for (const bool is_timed : {true, false}) {
      for (const Way start : starts) {
        spent_by -= all / static_cast<int64_t>(2 * starts.size());
        std::vector<Way> ways(block_begins_.size() - 1, start);
        for (int rung = 1; rung < kRungs && left_ > spent_by; ++rung) {
          const int64_t target = most - most / kRungs * rung;
          const bool reached = Reach(ways, target, is_timed, spent_by);
          if (reached && is_timed) Quicken(ways, target, spent_by);
          Add(PlanOf(ways));
          if (!reached) break;
        }
      }
    }
  }

  bool Reach(std::vector<Way>& ways, int64_t target, bool is_timed, int64_t spent_by) {
    Tried now = Try(ways, target);
    while (now.excess > 0 && left_ > spent_by) {
      double best_score = 0;
      size_t best_block = 0;
      Way best_way = Way::kKeep;
      Tried best;
      for (size_t b = 0; b < ways.size(); ++b) {
        const Way before = ways[b];
        for (const Way way : ways_) {
          if (way == before) continue;
          ways[b] = way;
          const Tried tried = Try(ways, target);
          const double gain = now.excess - tried.excess;
          if (gain <= 0) continue;
          // What costs nothing comes first.
          const double least_seconds = 1e-3 * now.cost.seconds / static_cast<double>(layers_);
          const double score =
              is_timed ? gain / std::max(tried.cost.seconds - now.cost.seconds, least_seconds)
                       : gain;
          if (score <= best_score) continue;
          best_score = score;
          best_block = b;
          best_way = way;
          best = tried;
        }
        ways[b] = before;
      }
      if (best_score <= 0) return false;
      ways[best_block] = best_way;
      now = best;
    }
    return now.excess <= 0;
  }

  // What is not needed for the target any more.
  void Quicken(std::vector<Way>& ways, int64_t target, int64_t spent_by) {
    double seconds = Try(ways, target).cost.seconds;
    for (size_t b = 0; b < ways.size() && left_ > spent_by; ++b) {
      Way best = ways[b];
      const Way before = ways[b];
      for (const Way way : ways_) {
        if (way == before) continue;
        ways[b] = way;
        const Tried tried = Try(ways, target);
        if (tried.excess > 0 || tried.cost.seconds >= seconds) continue;
        seconds = tried.cost.seconds;
        best = way;
      }
      ways[b] = best;
    }
  }

  // Transfers that may take longer, where memory allows.
  void AddWindows() {
    const size_t count = found_.size();
    for (size_t i = 0; i < count; ++i) {
      if (!found_[i].plan.spills()) continue;
      for (const auto& [behind, ahead] :
           {std::pair(1, 0), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2), std::pair(4, 4)}) {
        ActivationPlan plan = found_[i].plan;
        plan.spill_behind = behind;
        plan.spill_ahead = ahead;
        const ActivationCost cost = CostOf(problem_, plan);
        found_.push_back({std::move(plan), cost});
      }
    }
  }

  const ActivationProblem& problem_;
  std::vector<Way> ways_;
  const int layers_;
  std::vector<bool> can_remake_;  // by layer
  bool slices_ = false;
  std::vector<int> block_begins_;
  int64_t left_ = 0;  // evaluations
  std::vector<int64_t> alive_;
  std::vector<PlannedActivations> found_;
};

}  // namespace

const char* BudgetStrategyName(BudgetStrategy strategy) {
  switch (strategy) {
    case BudgetStrategy::kAuto:
      return "auto";
    case BudgetStrategy::kSpill:
      return "spill";
    case BudgetStrategy::kRecompute:
      return "recompute";
    case BudgetStrategy::kNone:
      return "none";
  }
  return "";
}

BudgetStrategy ParseBudgetStrategy(absl::string_view what, absl::string_view text) {
  for (const BudgetStrategy strategy : {BudgetStrategy::kAuto, BudgetStrategy::kSpill,
                                        BudgetStrategy::kRecompute, BudgetStrategy::kNone}) {
    if (text == BudgetStrategyName(strategy)) return strategy;
  }
  ThrowInvalidArgument(
      absl::StrCat(what, " is \"", text, "\", expected auto, spill, recompute or none"));
}

int LayersSearchedExhaustively(BudgetStrategy strategy) {
  int layers = 1;
  while (layers < kMostSingle && HasFewPlans(layers + 1, WaysOf(strategy).size())) ++layers;
  return layers;
}

std::vector<PlannedActivations> FindPlans(const ActivationProblem& problem,
                                          BudgetStrategy strategy) {
  if (problem.layers.empty()) ThrowInvalidArgument("plan of activations: no layers");
  return Search(problem, strategy).Find();
}

}  // namespace tidepool::nn
