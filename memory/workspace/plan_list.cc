// Plans in the order of what their requests begin with.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {
namespace {

// How many requests both begin with.
uint32_t CommonRequests(const CyclePlan& a, const CyclePlan& b) {
  const size_t shorter = std::min(a.signatures.size(), b.signatures.size());
  const auto differ = std::partition_point(
      a.signatures.begin(), a.signatures.begin() + static_cast<std::ptrdiff_t>(shorter),
      [&](const uint64_t& signature) {
        return signature == b.signatures[static_cast<size_t>(&signature - a.signatures.data())];
      });
  return static_cast<uint32_t>(differ - a.signatures.begin());
}

// What is next after `slot` requests: those that end there come first.
struct Next {
  bool ends;
  uint64_t signature;
};
Next NextOf(const CyclePlan& plan, uint32_t slot) {
  if (plan.signatures.size() <= slot) return {true, 0};
  return {false, plan.signatures[slot]};
}
bool Before(const Next& a, const Next& b) {
  return a.ends != b.ends ? a.ends : a.signature < b.signature;
}

bool BeginsBefore(const CyclePlan& a, const CyclePlan& b) {
  const uint32_t common = CommonRequests(a, b);
  return Before(NextOf(a, common), NextOf(b, common));
}

}  // namespace

const std::shared_ptr<const PlanList>& PlanList::None() {
  // Never destroyed: workspaces may end after the statics of the program.
  static const auto* const none = new std::shared_ptr<const PlanList>(std::make_shared<PlanList>());
  return *none;
}

// ---- parts ------------------------------------------------------------------------------------

PlanList::Entry::Entry(std::shared_ptr<const LearnedCycle> its_cycle)
    : cycle(std::move(its_cycle)),
      requests(cycle->plan->requests.size()),
      first_bytes(requests > 0 ? static_cast<size_t>(cycle->plan->requests.front().size) : 0) {}

std::shared_ptr<const PlanList::Chunk> PlanList::MakeChunk(Entries entries) {
  auto chunk = std::make_shared<Chunk>();
  for (const Entry& entry : entries) {
    chunk->most_requests = std::max(chunk->most_requests, entry.requests);
    chunk->most_first_bytes = std::max(chunk->most_first_bytes, entry.first_bytes);
  }
  chunk->entries = std::move(entries);
  return chunk;
}

std::shared_ptr<PlanList> PlanList::OfSorted(Cycles cycles) {
  // Room for some more in each.
  constexpr size_t kAtFirst = kMostOfPart * 3 / 4;
  auto list = std::make_shared<PlanList>();
  list->size_ = cycles.size();
  for (size_t begin = 0; begin < cycles.size(); begin += kAtFirst) {
    const auto first = cycles.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last =
        first + static_cast<std::ptrdiff_t>(std::min(kAtFirst, cycles.size() - begin));
    list->parts_.push_back({static_cast<uint32_t>(begin), MakeChunk(Entries(first, last))});
  }
  return list;
}

std::shared_ptr<PlanList> PlanList::Of(Cycles cycles) {
  std::sort(cycles.begin(), cycles.end(), [](const auto& a, const auto& b) {
    return a != b && BeginsBefore(*a->plan, *b->plan);
  });
  return OfSorted(std::move(cycles));
}

size_t PlanList::PartAt(uint32_t i) const {
  const auto behind =
      std::upper_bound(parts_.begin(), parts_.end(), i,
                       [](uint32_t at, const Part& part) { return at < part.begin; });
  return static_cast<size_t>(behind - parts_.begin()) - 1;
}

void PlanList::SetBegins(size_t from_part) noexcept {
  for (size_t i = std::max<size_t>(from_part, 1); i < parts_.size(); ++i) {
    parts_[i].begin = parts_[i - 1].begin + static_cast<uint32_t>(parts_[i - 1].size());
  }
}

void PlanList::Insert(std::shared_ptr<const LearnedCycle> cycle) {
  if (parts_.empty()) {
    parts_.push_back({0, MakeChunk({Entry(std::move(cycle))})});
    size_ = 1;
    return;
  }
  const CyclePlan& plan = *cycle->plan;
  const uint32_t at = Like(plan, static_cast<uint32_t>(plan.signatures.size())).begin;
  const size_t part = PartAt(at < size_ ? at : at - 1);
  Entries entries;
  entries.reserve(parts_[part].size() + 1);
  const Entries& old = parts_[part].chunk->entries;
  const auto place = old.begin() + static_cast<std::ptrdiff_t>(at - parts_[part].begin);
  entries.insert(entries.end(), old.begin(), place);
  entries.emplace_back(std::move(cycle));
  entries.insert(entries.end(), place, old.end());
  if (entries.size() > kMostOfPart) {
    const auto half = entries.begin() + static_cast<std::ptrdiff_t>(entries.size() / 2);
    Part second{0, MakeChunk(Entries(half, entries.end()))};
    entries.erase(half, entries.end());
    parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(part) + 1, std::move(second));
  }
  parts_[part].chunk = MakeChunk(std::move(entries));
  ++size_;
  SetBegins(part);
}

void PlanList::Erase(const LearnedCycle& cycle) {
  const uint32_t at = PlaceOf(cycle);
  if (at == size_) return;
  const size_t part = PartAt(at);
  Entries entries = parts_[part].chunk->entries;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(at - parts_[part].begin));
  // Small ones join, so that there are not as many parts as plans when most have gone.
  const auto joins = [&](size_t i) {
    return i < parts_.size() && entries.size() + parts_[i].size() <= kMostOfPart / 2;
  };
  if (joins(part + 1)) {
    const Entries& others = parts_[part + 1].chunk->entries;
    entries.insert(entries.end(), others.begin(), others.end());
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(part) + 1);
  }
  if (entries.empty()) {
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(part));
    if (part == 0 && !parts_.empty()) parts_[0].begin = 0;
  } else {
    parts_[part].chunk = MakeChunk(std::move(entries));
  }
  --size_;
  SetBegins(part);
}

void PlanList::Replace(const LearnedCycle& cycle, std::shared_ptr<const LearnedCycle> by) {
  const uint32_t at = PlaceOf(cycle);
  if (at == size_) return;
  Part& part = parts_[PartAt(at)];
  Entries entries = part.chunk->entries;
  entries[at - part.begin] = Entry(std::move(by));
  part.chunk = MakeChunk(std::move(entries));
}

size_t PlanList::most_requests() const {
  size_t most = 0;
  for (const Part& part : parts_) most = std::max(most, part.chunk->most_requests);
  return most;
}

size_t PlanList::state_bytes() const {
  return parts_.capacity() * sizeof(Part) + parts_.size() * (sizeof(Chunk) + 2 * sizeof(void*)) +
         size_ * sizeof(Entry);
}

// ---- looking ----------------------------------------------------------------------------------

template <typename Before>
uint32_t PlanList::PartitionPoint(uint32_t begin, uint32_t end, const Before& before) const {
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (before((*this)[middle])) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

uint32_t PlanList::PlaceOf(const LearnedCycle& cycle) const {
  const auto requests = static_cast<uint32_t>(cycle.plan->signatures.size());
  const Range alike = Like(*cycle.plan, requests);
  for (uint32_t i = alike.begin; i < alike.end; ++i) {
    if (&(*this)[i] == &cycle) return i;
    if ((*this)[i].plan->signatures.size() > requests) break;
  }
  return static_cast<uint32_t>(size_);
}

const LearnedCycle* PlanList::SmallestThatBegins(size_t bytes, size_t most_peak) const {
  const Entry* smallest = nullptr;
  for (const Part& part : parts_) {
    if (part.chunk->most_first_bytes < bytes) continue;
    for (const Entry& entry : part.chunk->entries) {
      if (entry.first_bytes < bytes) continue;
      if (smallest != nullptr && entry.first_bytes >= smallest->first_bytes) continue;
      const PlanLayout& layout = entry.cycle->plan->layout;
      if (!layout.IsOutside(0) && layout.peak_bytes() <= most_peak) smallest = &entry;
    }
  }
  return smallest != nullptr ? smallest->cycle.get() : nullptr;
}

PlanList::Range PlanList::Like(const CyclePlan& plan, uint32_t count, const Range& among) const {
  if (count == 0 || among.empty()) return {among.begin, among.end};
  const Next last = NextOf(plan, count - 1);
  const auto is_like = [&](const LearnedCycle& cycle) {
    const Next its = NextOf(*cycle.plan, count - 1);
    return !its.ends && !last.ends && its.signature == last.signature;
  };
  const auto is_before = [&](const LearnedCycle& cycle) {
    if (is_like(cycle)) return false;
    const uint32_t common = CommonRequests(*cycle.plan, plan);
    return Before(NextOf(*cycle.plan, common), NextOf(plan, common));
  };
  uint32_t begin = among.begin, end = among.end;
  if (!is_like((*this)[begin])) begin = PartitionPoint(begin, end, is_before);
  if (begin < end && !is_like((*this)[end - 1])) end = PartitionPoint(begin, end, is_like);
  return {begin, end};
}

void PlanList::Narrow(uint32_t slot, uint64_t signature, Range* in_place) const {
  Range& range = *in_place;
  if (range.empty()) return;
  const Next next{false, signature};
  const auto is_next = [&](const CyclePlan& plan) {
    const Next of = NextOf(plan, slot);
    return !of.ends && of.signature == signature;
  };
  const auto before = [&](const LearnedCycle& cycle) {
    return Before(NextOf(*cycle.plan, slot), next);
  };
  if (range.first == nullptr) range.first = (*this)[range.begin].plan.get();
  if (range.last == nullptr) range.last = (*this)[range.end - 1].plan.get();
  if (!is_next(*range.first)) {
    // Of sequences of many lengths one or a few have ended: it is not far.
    uint32_t step = 1, from = range.begin + 1;
    while (step < range.end - from && before((*this)[from + step - 1])) {
      from += step;
      step *= 2;
    }
    range.begin = PartitionPoint(from, std::min(from + step, range.end), before);
    if (range.begin < range.end) range.first = (*this)[range.begin].plan.get();
    if (range.begin == range.end || !is_next(*range.first)) {
      range = {};
      return;
    }
  }
  if (is_next(*range.last)) return;
  range.end = PartitionPoint(range.begin + 1, range.end, [&](const LearnedCycle& cycle) {
    return !Before(next, NextOf(*cycle.plan, slot));
  });
  range.last = nullptr;
}

}  // namespace tidepool
