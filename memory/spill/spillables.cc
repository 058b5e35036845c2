#include "tidepool/memory/spill/spillables.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/spill/spillables_serving.h"

namespace tidepool {
namespace {

constexpr size_t kPinnedNamed = 3;

// Of whoever looks at what nobody has pinned, for which he pins it for a moment: one at a time, so that nobody takes the look for a
// use. A child of fork() looks at nothing.
std::mutex& LooksMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Why it would stay, as it is now, or, where it is being moved, as was found last; `find` says so of what is here.
template <typename Find>
const char* FindWhyItStays(SpillState<StdSync>& state, std::atomic<const char*>& stays, Find find) {
  using Found = SpillState<StdSync>::Found;
  Found found = Found::kHere;
  if (state.is_here() && state.Pin(&found, /*may_wait=*/false)) {
    if (found == Found::kHere) {
      stays.store(find(), std::memory_order_relaxed);
      state.Unpin();
    } else if (found == Found::kAway) {
      state.StaysAway();
    } else if (found == Found::kComing) {
      state.Comes();
    } else {
      state.Goes();
    }
  }
  return stays.load(std::memory_order_relaxed);
}

}  // namespace

Spillables::Spillables(SpillFile& file, std::string name)
    : Spillables(file, std::vector<SpillTier>(), std::move(name)) {}

Spillables::Spillables(SpillFile& file, std::vector<SpillTier> tiers, std::string name)
    : file_(file),
      tiers_(CheckedTiers(std::move(tiers), name)),
      in_tiers_(tiers_.size()),
      registration_(Reclaimer::Global().Register(std::move(name), static_cast<Spiller&>(*this))) {}

Spillables::~Spillables() { registration_.Reset(); }

void Spillables::CheckNotChild(const Item& item) const {
  if (!IsChild()) return;
  ThrowFailedPrecondition(
      absl::StrCat("spillable \"", item.name,
                   "\": found a child of fork(), expected the process that made its Spillables"));
}

// The lock may be a thread's that is not there, and what it guards may be half changed.
void Spillables::Add(const std::shared_ptr<Item>& item) {
  CheckNotChild(*item);
  const std::lock_guard lock(mutex_);
  item->place_ = items_.insert(items_.end(), item);
  item->listed_ = true;
  Note(cycle_.Add(*item));
}

void Spillables::Remove(Item& item) noexcept {
  if (IsChild()) return;
  const std::lock_guard lock(mutex_);
  if (!item.listed_) return;
  SetAway(item, false);
  item.listed_ = false;
  *item.root_ = nullptr;
  cycle_.Remove(item);
  NotAhead(item);
  items_.erase(item.place_);
}

std::vector<std::shared_ptr<Spillables::Item>> Spillables::Items() const {
  std::vector<std::shared_ptr<Item>> items;
  const std::lock_guard lock(mutex_);
  items.reserve(items_.size());
  for (const std::weak_ptr<Item>& item : items_) {
    if (std::shared_ptr<Item> there = item.lock()) items.push_back(std::move(there));
  }
  return items;
}

// ---- one item -------------------------------------------------------------------------------------

void Spillables::Pin(Item& item) {
  Found found = Found::kHere;
  const bool is_child = IsChild();
  if (!item.state.Pin(&found, !is_child && !internal::InCallback())) {
    ThrowFailedPrecondition(
        absl::StrCat("spillable \"", item.name, "\": it is being moved, ",
                     is_child ? "by the parent of this child of fork()"
                              : "and a callback of the runtime may not wait for that"));
  }
  if (is_child && found == Found::kGoing) {  // it is here, and who writes it is not
    item.EndWrite();
    item.state.Brought();
  } else if (is_child && found != Found::kHere) {
    item.state.StaysAway();
    ThrowFailedPrecondition(absl::StrCat(
        "spillable \"", item.name, "\": it is in a file of the parent of this child of fork()"));
  }
  if (is_child) {
    item.pinned_by_.store(MemoryOwner::Current().number(), std::memory_order_relaxed);
    return;
  }
  bool in_time = false;
  if (found == Found::kGoing) {
    const bool written = item.EndWrite();
    {
      const std::lock_guard lock(mutex_);
      writing_.reset();
      if (!written) internal::CountSpillPlan(&stats_.plan, {.early_in_vain = 1});
    }
    item.state.Brought();
  } else if (found != Found::kHere) {
    in_time = found == Found::kComing && item.HasCome();
    try {
      item.Bring(found == Found::kComing);
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        if (item.is_ahead_) brought_ -= item.bytes;
        NotAhead(item);
        SetAway(item, true);
      }
      item.state.StaysAway();
      throw;
    }
    item.state.Brought();
  }
  item.pinned_by_.store(MemoryOwner::Current().number(), std::memory_order_relaxed);
  NoteUse(item, found, in_time);
}

void Spillables::NoteUse(Item& item, Found found, bool in_time) {
  const bool comes = found == Found::kAway || found == Found::kComing;
  const bool has_cycles = has_cycles_.load(std::memory_order_relaxed);
  if (comes || has_cycles) {
    const std::lock_guard lock(mutex_);
    if (comes) {
      ++stats_.returns;
      stats_.returned_bytes += item.bytes;
      if (!in_time) ++stats_.stalls;
      if (item.is_ahead_)
        internal::CountSpillPlan(&stats_.plan, {.in_time = in_time, .late = !in_time});
      else
        brought_ += item.bytes;
      NotAhead(item);
      SetAway(item, false);
      item.in_vain_ = false;
    }
    if (has_cycles && item.listed_) Note(cycle_.Use(item));
  }
  GoAhead();
}

void Spillables::Unpin(Item& item) noexcept {
  if (!IsChild()) {
    const std::lock_guard lock(mutex_);
    if (item.listed_) items_.splice(items_.end(), items_, item.place_);
  }
  item.state.Unpin();
  GoAhead();
}

void Spillables::Prefetch(Item& item) {
  if (IsChild() || !item.state.BeginComing()) return;
  try {
    item.BeginToBring();
  } catch (...) {
    item.state.StaysAway();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    SetAway(item, false);
  }
  item.state.Comes();
}

void Spillables::NoteFailure() noexcept {
  try {
    try {
      throw;
    } catch (const std::exception& error) {
      failure_ = error.what();
    } catch (...) {
      failure_ = "an exception of no known type";
    }
  } catch (const std::bad_alloc&) {
  }
}

bool Spillables::LetGo(Item& item, bool to_file) {
  if (IsChild()) return false;
  Found found = Found::kHere;
  if (!item.state.BeginSpill(&found)) {
    const std::lock_guard looks(LooksMutex());  // which are no use
    if (!item.state.BeginSpill(&found)) return false;
  }
  const char* const stays = found == Found::kHere ? item.WhyItStays() : nullptr;
  item.stays_.store(stays, std::memory_order_relaxed);
  if (stays != nullptr) {
    item.state.StaysHere();
    return false;
  }
  int64_t written = 0;
  try {
    written = item.LetGo(found, to_file);
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (found == Found::kGoing) writing_.reset();
      ++stats_.failures;
      NoteFailure();
    }
    item.state.StaysHere();
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    if (found == Found::kGoing) writing_.reset();
    if (item.is_ahead_) {
      item.in_vain_ = true;
      internal::CountSpillPlan(&stats_.plan, {.in_vain = 1});
    }
    NotAhead(item);
    if (item.tier == Item::kNoTier) {
      SetAway(item, true);
      ++stats_.spills;
      stats_.spilled_bytes += item.bytes;
    } else {
      CountInTier(item.tier, {.went_on = 1, .went_on_bytes = item.bytes});
      item.waiting_.Reset();
    }
    stats_.rewritten_bytes += written;
  }
  item.state.Spilled();
  return true;
}

// ---- under pressure ---------------------------------------------------------------------------------

int64_t Spillables::SpillWhere(int64_t wanted, Serves serves, bool to_file, int64_t used_after) {
  int64_t gone = 0;
  for (const bool recomputed : {false, true}) {
    if (gone >= wanted) break;
    bool by_plan = false;
    std::vector<Candidate> left =
        Candidates([&](const Item& item) { return item.recomputed == recomputed && serves(item); },
                   used_after, &by_plan);
    while (gone < wanted && !left.empty()) {
      // Where something is known, no more than is needed goes: one large one does instead of several small ones.
      for (const Candidate& candidate : TakeLeast(&left, by_plan ? wanted - gone : 1)) {
        try {
          if (LetGo(*candidate.item, to_file)) gone += candidate.item->bytes;
        } catch (const Error&) {
          // A full disk, or one that fails: it stays, as do others perhaps, and what can be computed again may go still.
        } catch (const std::bad_alloc&) {
        }
      }
    }
  }
  return gone;
}

int64_t Spillables::Spill(int64_t wanted, const MemoryRequest& request) {
  if (IsChild()) return 0;
  {
    const std::lock_guard lock(mutex_);
    failure_.clear();
  }
  const Serving serving(request);
  return SpillWhere(
      wanted, [&](const Item& item) { return serving.Serves(item); }, serving.any_device());
}

int64_t Spillables::SpillNow(int64_t wanted) {
  if (IsChild()) return 0;
  return SpillWhere(
      wanted, [](const Item&) { return true; }, /*to_file=*/true);
}

// ---- words --------------------------------------------------------------------------------------------

std::string Spillables::DescribePinned() const {
  if (IsChild()) return "";
  int64_t bytes = 0;
  std::vector<std::string> named;
  size_t count = 0;
  // Who pinned may be a workspace that has gone since, whose node is none any more.
  const MemoryOwnersHold hold;
  const std::vector<MemoryOwner*> owners = MemoryOwner::All();
  const auto name_of = [&](uint64_t number) {
    const auto found = std::find_if(owners.begin(), owners.end(), [&](const MemoryOwner* owner) {
      return owner->number() == number;
    });
    return found != owners.end() ? OneLine((*found)->Path()) : "a workspace that is gone";
  };
  for (const std::shared_ptr<Item>& item : Items()) {
    const std::lock_guard looks(LooksMutex());
    if (item->tier != Item::kNoTier || !item->state.is_here()) continue;
    const bool pinned = item->state.pins() > 0;
    const char* const stays =
        pinned ? nullptr
               : FindWhyItStays(item->state, item->stays_, [&] { return item->WhyItStays(); });
    if (!pinned && stays == nullptr) continue;
    bytes += item->bytes;
    if (++count > kPinnedNamed) continue;
    named.push_back(absl::StrCat(
        "\"", OneLine(item->name), "\" ", item->bytes, " (",
        pinned
            ? absl::StrCat("pinned by ", name_of(item->pinned_by_.load(std::memory_order_relaxed)))
            : stays,
        ")"));
  }
  std::string failed;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) failed = absl::StrCat("arrays were not spilled: ", OneLine(failure_));
  }
  if (count == 0) return failed;
  std::string out = absl::StrCat(failed, failed.empty() ? "" : "; ", bytes,
                                 " bytes could be spilled but for their use: ");
  for (size_t i = 0; i < named.size(); ++i) absl::StrAppend(&out, i == 0 ? "" : ", ", named[i]);
  if (count > named.size()) absl::StrAppend(&out, " and ", count - named.size(), " more");
  return out;
}

SpillablesStats Spillables::stats() const {
  SpillablesStats stats;
  if (IsChild()) return stats;
  const std::vector<std::shared_ptr<Item>> items = Items();
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
    stats.tiers = in_tiers_;
  }
  for (size_t tier = 0; tier < tiers_.size(); ++tier) {
    stats.tiers[tier].device = tiers_[tier].device;
    stats.tiers[tier].limit_bytes = tiers_[tier].bytes;
  }
  for (const std::shared_ptr<Item>& item : items) {
    const std::lock_guard looks(LooksMutex());
    if (item->tier != Item::kNoTier) {
      if (item->state.has_memory())
        stats.tiers[static_cast<size_t>(item->tier)].here_bytes += item->bytes;
      continue;
    }
    ++stats.items;
    if (item->recomputed) stats.recomputed_bytes += item->bytes;
    if (!item->state.has_memory()) {
      stats.away_bytes += item->bytes;
      continue;
    }
    stats.here_bytes += item->bytes;
    if (item->state.pins() > 0)
      stats.pinned_bytes += item->bytes;
    else if (FindWhyItStays(item->state, item->stays_, [&] { return item->WhyItStays(); }))
      stats.elsewhere_bytes += item->bytes;
  }
  return stats;
}

std::string SpillablesStats::ToString() const {
  std::string text = absl::StrCat(
      items, " spillable: ", here_bytes, " bytes in memory (", pinned_bytes, " pinned, ",
      elsewhere_bytes, " with others as well), ", away_bytes, " away, ", recomputed_bytes,
      " of all are computed again; ", spills, " went (", spilled_bytes, " bytes, ", rewritten_bytes,
      " of them written), ", returns, " came back (", returned_bytes, " bytes), ", stalls,
      " were waited for, ", failures, " failures\n", plan.ToString());
  for (const SpillTierStats& tier : tiers) {
    absl::StrAppend(&text, "tier ", DeviceName(tier.device), ": ", tier.here_bytes, " bytes of ",
                    tier.limit_bytes == std::numeric_limits<int64_t>::max()
                        ? "any"
                        : absl::StrCat(tier.limit_bytes),
                    "; ", tier.came, " came (", tier.came_bytes, " bytes), ", tier.returned,
                    " returned (", tier.returned_bytes, " bytes), ", tier.went_on, " went on (",
                    tier.went_on_bytes, " bytes), ", tier.passed_by, " passed by\n");
  }
  return text;
}

}  // namespace tidepool
