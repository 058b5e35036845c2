// What goes, by the plan or by least recent use, and what is done ahead of use.
#include <algorithm>
#include <new>
#include <utility>

#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/spill/spillables_serving.h"

namespace tidepool {
namespace {

// How many uses before its own a thing is read where there is room, others make room for it, and what is to make room next is written.
constexpr int64_t kUsesAhead = 8, kUsesToMakeRoom = 4, kUsesToWrite = 2;
constexpr int kMostComing = 4;
constexpr size_t kMostTried = 8;  // to make room

bool IsBelow(const MemoryOwner& owner, const MemoryOwner& node) {
  for (const MemoryOwner* at = &owner; at != nullptr; at = at->parent()) {
    if (at == &node) return true;
  }
  return false;
}

// By how much it lacks room.
int64_t MissingIn(const BudgetUsage& usage, int64_t bytes) {
  const int64_t limit = std::min(usage.limit_bytes, usage.soft_limit_bytes);
  return limit == MemoryBudget::kUnlimited
             ? 0
             : std::max<int64_t>(0, bytes - (limit - usage.taken_bytes));
}

}  // namespace

// The lowest node whose limit is in the way: what goes below it makes room at those above as well. Where there is none it is the process's
// limit, which counts all devices, or the system or the device that refuses.
Spillables::Serving::Serving(const MemoryRequest& request) : device_(request.device) {
  const MemoryBudget& budget = MemoryBudget::Global();
  for (const MemoryOwner* node = request.owner; node != nullptr; node = node->parent()) {
    missing_bytes_ = MissingIn(budget.Of(*node, request.device), request.bytes);
    if (missing_bytes_ == 0) continue;
    node_ = node;
    return;
  }
  missing_bytes_ = MissingIn(budget.process(), request.bytes);
  any_device_ = missing_bytes_ > 0;
}

bool Spillables::Serving::Serves(const Item& item) const {
  return (any_device_ || item.device == device_) &&
         (node_ == nullptr || IsBelow(item.owner, *node_));
}

// ---- which go -------------------------------------------------------------------------------------------

std::vector<Spillables::Candidate> Spillables::Candidates(Serves serves, int64_t used_after,
                                                          bool* by_plan) const {
  std::vector<Candidate> candidates;
  {
    const std::lock_guard lock(mutex_);
    *by_plan = cycle_.follows() && caution_ < kLeastRecentUse;
    candidates.reserve(items_.size());
    for (const std::weak_ptr<Item>& listed : items_) {
      std::shared_ptr<Item> item = listed.lock();
      if (item == nullptr) continue;
      const Item& used = *item->root_ != nullptr ? **item->root_ : *item;
      const int64_t next_use = *by_plan ? cycle_.NextUse(used) : internal::UseCycle::kNever;
      candidates.push_back({next_use, std::move(item)});
    }
  }
  // Without the lock, as the last one to know an item frees its memory.
  std::erase_if(candidates, [&](const Candidate& candidate) {
    const Item& item = *candidate.item;
    return !item.state.has_memory() || item.state.pins() > 0 || candidate.next_use <= used_after ||
           !serves(item);
  });
  if (*by_plan) {
    std::stable_sort(
        candidates.begin(), candidates.end(),
        [](const Candidate& a, const Candidate& b) { return a.next_use > b.next_use; });
  }
  return candidates;
}

std::vector<Spillables::Candidate> Spillables::TakeLeast(std::vector<Candidate>* left,
                                                         int64_t wanted) {
  int64_t sum = 0;
  size_t count = 0;
  while (count < left->size() && sum < wanted) sum += (*left)[count++].item->bytes;
  // Those that are used soonest first: the last one is needed, and may do for some before it.
  std::vector<Candidate> taken, others;
  for (size_t i = count; i-- > 0;) {
    Candidate& candidate = (*left)[i];
    const bool is_needed = sum - candidate.item->bytes < wanted;
    if (!is_needed) sum -= candidate.item->bytes;
    (is_needed ? taken : others).push_back(std::move(candidate));
  }
  std::reverse(taken.begin(), taken.end());
  std::reverse(others.begin(), others.end());
  left->erase(left->begin(), left->begin() + static_cast<std::ptrdiff_t>(count));
  left->insert(left->begin(), std::make_move_iterator(others.begin()),
               std::make_move_iterator(others.end()));
  return taken;
}

// ---- cycles ---------------------------------------------------------------------------------------------

void Spillables::Note(const internal::UseCycle::Outcome& outcome) {
  internal::CountSpillPlan(&stats_.plan, {.unrecorded_cycles = outcome.unrecorded,
                                          .followed_uses = outcome.followed,
                                          .mispredictions = outcome.left});
  if (outcome.left) follows_.store(false, std::memory_order_relaxed);
}

void Spillables::SetAway(Item& item, bool away) {
  if (!item.listed_ || item.is_away_ == away) return;
  item.is_away_ = away;
  away_.fetch_add(away ? 1 : -1, std::memory_order_relaxed);
}

void Spillables::NotAhead(Item& item) {
  if (std::exchange(item.is_ahead_, false)) --coming_;
}

void Spillables::EndCycle() {
  if (IsChild()) return;
  {
    const std::lock_guard lock(mutex_);
    const bool has_begun = cycle_.has_begun();
    const internal::UseCycle::Outcome outcome = cycle_.EndCycle();
    internal::CountSpillPlan(
        &stats_.plan,
        {.cycles = has_begun, .followed_cycles = outcome.followed, .mispredictions = outcome.left});
    if (!followed_from_start_) {
      least_recent_bytes_ = brought_;
      caution_ = 0;
      more_bytes_ = 0;
    } else if (outcome.followed) {
      JudgePlan();
    }
    followed_from_start_ = cycle_.follows();
    follows_.store(followed_from_start_, std::memory_order_relaxed);
    has_cycles_.store(true, std::memory_order_relaxed);
    brought_ = 0;
    ahead_fails_ = false;
  }
  GoAhead();
}

// Whether the plan brings more than least recent use did, in all.
void Spillables::JudgePlan() {
  if (caution_ == kLeastRecentUse) {
    ++caution_;  // this cycle began with what the plan had left
    return;
  }
  if (caution_ > kLeastRecentUse) {
    if (brought_ <= least_recent_bytes_) return;
    // Budgets have changed: nothing is known of the plan any more.
    least_recent_bytes_ = brought_;
    more_bytes_ = caution_ = 0;
    return;
  }
  more_bytes_ += brought_ - least_recent_bytes_;
  // A plan begins with what least recent use left; after another way, that itself would have to bring as much as there is room for.
  int64_t allowed = 0;
  if (caution_ > 0 && more_bytes_ > 0) {
    for (const std::weak_ptr<Item>& listed : items_) {
      const auto* const item = static_cast<const Item*>(listed.lock().get());
      if (item != nullptr && item->tier == Item::kNoTier && item->state.has_memory())
        allowed += item->bytes;
    }
  }
  if (more_bytes_ <= allowed) return;
  ++caution_;
  more_bytes_ = 0;
}

void Spillables::set_ahead(bool ahead) {
  const std::lock_guard lock(mutex_);
  ahead_ = ahead;
}

// ---- ahead of use ---------------------------------------------------------------------------------------

void Spillables::GoAhead() noexcept {
  if (!follows_.load(std::memory_order_relaxed) || away_.load(std::memory_order_relaxed) == 0)
    return;
  if (internal::InCallback() || IsChild()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!ahead_ || caution_ >= kNothingAhead || ahead_fails_ || is_going_ahead_) return;
    is_going_ahead_ = true;
  }
  bool fails = false;
  try {
    for (int i = 0; i < kMostComing && BringNext(); ++i) {
    }
  } catch (...) {
    // Whoever uses it is told, if it is so then. What fails is not tried at each use.
    fails = true;
  }
  const std::lock_guard lock(mutex_);
  is_going_ahead_ = false;
  ahead_fails_ = ahead_fails_ || fails;
}

// Whether there may be more to do.
bool Spillables::BringNext() {
  std::shared_ptr<Item> item, written;
  int64_t use = 0;
  bool is_next = false;
  {
    const std::lock_guard lock(mutex_);
    written = writing_.lock();
    is_next = coming_ == 0;
    for (; coming_ < kMostComing && use < kUsesAhead && cycle_.follows(); ++use) {
      auto* const expected = static_cast<Item*>(cycle_.Expected(use));
      if (expected == nullptr || expected->recomputed || expected->in_vain_) continue;
      if (!expected->state.is_away()) continue;
      item = expected->place_->lock();
      break;
    }
  }
  if (written != nullptr) IsReady(written, /*may_begin=*/false);
  if (item == nullptr) return false;
  const Room room = MakeRoom(*item, use, is_next);
  if (room != Room::kIs) return room == Room::kIsMade;
  if (!item->state.BeginComing()) return false;
  try {
    item->BeginToBring();
  } catch (...) {
    item->state.StaysAway();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    if (item->listed_) {
      item->is_ahead_ = true;
      ++coming_;
    }
    SetAway(*item, false);
    brought_ += item->bytes;
    internal::CountSpillPlan(&stats_.plan, {.ahead = 1, .ahead_bytes = item->bytes});
  }
  item->state.Comes();
  return true;
}

// For what is used in so many uses. `is_next`: nothing else is coming. What is used earlier makes no room.
Spillables::Room Spillables::MakeRoom(const Item& item, int64_t use, bool is_next) {
  // What goes to a device comes by way of the host.
  const Serving serving({Host(), &item.owner, item.bytes, "an array ahead of its use"});
  if (serving.missing_bytes() == 0) return Room::kIs;
  if (item.device != Host() || use >= kUsesToMakeRoom) return Room::kIsNot;
  bool by_plan = false;
  std::vector<Candidate> candidates = Candidates(
      [&](const Item& other) {
        return other.state.is_here() && other.device == Host() && serving.Serves(other);
      },
      use, &by_plan);
  if (!by_plan) return Room::kIsNot;
  std::vector<Candidate> ready;
  int64_t bytes = 0;
  for (size_t i = 0; i < std::min(kMostTried, candidates.size()); ++i) {
    if (bytes >= serving.missing_bytes()) break;
    // What is not used again, as far as is known, may be freed before it has to go.
    const bool may_be_written =
        use < kUsesToWrite && candidates[i].next_use != internal::UseCycle::kNever;
    if (!IsReady(candidates[i].item, may_be_written)) continue;
    bytes += candidates[i].item->bytes;
    ready.push_back(std::move(candidates[i]));
  }
  int caution = 0;
  {
    const std::lock_guard lock(mutex_);
    caution = caution_;
  }
  if (bytes < serving.missing_bytes() || !is_next || caution >= kNoRoomMade) return Room::kIsNot;
  bool all = true;
  for (const Candidate& candidate : TakeLeast(&ready, serving.missing_bytes())) {
    all = LetGo(*candidate.item, serving.any_device()) && all;
  }
  return all ? Room::kIsMade : Room::kIsNot;
}

// Whether its memory could go without waiting. `may_begin`: else its write may be begun.
bool Spillables::IsReady(const std::shared_ptr<Item>& item, bool may_begin) {
  Found found = Found::kHere;
  if (!item->state.BeginSpill(&found)) return false;
  if (found == Found::kComing) {
    item->state.Comes();
    return false;
  }
  if (found == Found::kGoing) {
    if (!item->HasWritten()) {
      item->state.Goes();
      return false;
    }
    const bool well = item->EndWrite();
    {
      const std::lock_guard lock(mutex_);
      writing_.reset();
      if (well) stats_.rewritten_bytes += item->bytes;
      if (!well) {
        ++stats_.failures;
        ahead_fails_ = true;
      }
    }
    item->state.StaysHere();
    return well;
  }
  const bool stays = item->WhyItStays() != nullptr;
  const bool written = !stays && item->IsWritten();
  if (stays || written || !may_begin || item->tier != Item::kNoTier) {
    item->state.StaysHere();
    return written;
  }
  {
    const std::lock_guard lock(mutex_);
    may_begin = writing_.expired() && !ahead_fails_;
    if (may_begin) writing_ = item;
  }
  if (!may_begin) {
    item->state.StaysHere();
    return false;
  }
  try {
    item->BeginToWrite();
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      writing_.reset();
      ++stats_.failures;
    }
    item->state.StaysHere();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    internal::CountSpillPlan(&stats_.plan, {.early_writes = 1, .early_bytes = item->bytes});
  }
  item->state.Goes();
  return false;
}

}  // namespace tidepool
