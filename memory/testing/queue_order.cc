#include "tidepool/memory/testing/queue_order.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace tidepool {
namespace {

bool Disturb(const QueueOrder::Use& a, const QueueOrder::Use& b) {
  return a.begin < b.end && b.begin < a.end && (a.writes || b.writes);
}

std::string Text(const QueueOrder::Use& use) {
  char text[80];
  std::snprintf(text, sizeof text, "%s %td bytes at %p", use.writes ? "writes" : "reads",
                use.end - use.begin, static_cast<const void*>(use.begin));
  return text;
}

}  // namespace

QueueOrder::Work* QueueOrder::Find(uint64_t number) {
  Work& work = works_[number % kMostKept];
  return number != 0 && work.number == number ? &work : nullptr;
}

void QueueOrder::Forget(size_t place) {
  works_[place] = Work();
  for (Work& work : works_) work.after.reset(place);
}

std::string QueueOrder::Add(uint64_t number, const std::vector<uint64_t>& after,
                            const std::vector<Use>& uses) {
  const size_t place = number % kMostKept;
  if (works_[place].number != 0) Forget(place);
  Work added;
  added.number = number;
  added.uses = uses;
  for (const uint64_t before : after) {
    if (const Work* const work = Find(before)) {
      added.after |= work->after;
      added.after.set(before % kMostKept);
    }
  }
  std::string disturbed;
  for (size_t i = 0; i < kMostKept; ++i) {
    const Work& work = works_[i];
    if (work.number == 0 || added.after.test(i)) continue;
    for (const Use& use : added.uses) {
      for (const Use& other : work.uses) {
        if (!Disturb(use, other)) continue;
        disturbed = "work " + std::to_string(number) + ", which " + Text(use) + ", and work " +
                    std::to_string(work.number) + ", which " + Text(other);
      }
    }
  }
  works_[place] = std::move(added);
  return disturbed;
}

bool QueueOrder::IsUsed(const Use& range) const {
  return std::any_of(works_.begin(), works_.end(), [&](const Work& work) {
    return std::any_of(work.uses.begin(), work.uses.end(), [&](const Use& use) {
      return use.begin < range.end && range.begin < use.end;
    });
  });
}

void QueueOrder::Release(const Use& range) {
  for (Work& work : works_) {
    std::erase_if(work.uses,
                  [&](const Use& use) { return use.begin < range.end && range.begin < use.end; });
  }
}

void QueueOrder::Done(uint64_t number) {
  const Work* const work = Find(number);
  if (work == nullptr) return;
  std::bitset<kMostKept> done = work->after;
  done.set(number % kMostKept);
  for (size_t i = 0; i < kMostKept; ++i) {
    if (done.test(i)) Forget(i);
  }
}

}  // namespace tidepool
