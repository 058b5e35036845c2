#include "tidepool/memory/provider/device_dependence.h"

#include <bitset>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"

namespace tidepool {
namespace internal {

constinit std::atomic<int> dependences_under_way{0};

}  // namespace internal
namespace {

using internal::dependences_under_way;

struct Dependence {
  Device target, source;
  QueuePoint point;  // 0: nothing is under way
  Dependence* next;
};
// Taken last, and nothing is called under it: devices are lost under locks of theirs.
std::mutex mutex;
constinit Dependence* first = nullptr;  // never destroyed: arrays are copied in static destructors, too

using Places = std::bitset<kDevicePlaces>;
size_t PlaceOf(Device device) {
  return static_cast<size_t>(device.type.number() * kMaxDevicesPerType + device.index);
}

Dependence* FindLocked(Device target, Device source) {
  Dependence* each = first;
  while (each != nullptr && !(each->target == target && each->source == source)) each = each->next;
  return each;
}

void SetLocked(Dependence& dependence, QueuePoint point) {
  dependences_under_way.fetch_add((point.value != 0) - (dependence.point.value != 0), std::memory_order_release);
  dependence.point = point;
}

// A copy of one that has something under way and that `is` is true of; false: there is none.
template <typename Is>
bool FindUnderWay(const Is& is, Dependence* found) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Dependence* each = first; each != nullptr; each = each->next) {
    if (each->point.value == 0 || !is(*each)) continue;
    *found = *each;
    return true;
  }
  return false;
}

// Unless there has been a later one.
void End(const Dependence& ended) {
  std::lock_guard<std::mutex> lock(mutex);
  Dependence& dependence = *FindLocked(ended.target, ended.source);
  if (dependence.point.value == ended.point.value) SetLocked(dependence, {});
}

// A source is asked for its own sources first: what those left is part of what it gave.
void AskSources(Device target, Places& asked) {
  if (asked[PlaceOf(target)]) return;
  asked.set(PlaceOf(target));
  Places seen;
  Dependence each;
  while (FindUnderWay([&](const Dependence& of) { return of.target == target && !seen[PlaceOf(of.source)]; }, &each)) {
    seen.set(PlaceOf(each.source));
    AskSources(each.source, asked);
    bool passed = false;
    try {
      passed = FindDeviceProvider(each.source)->HasPassed(each.point);
    } catch (const Error&) {
      // It is lost, and its dependents with it, or did not answer this time.
    }
    // The points of a device that is lost may pass as well.
    if (passed && !IsLost(each.source)) End(each);
  }
}

}  // namespace

void PrepareToDepend(Device target, Device source) {
  std::lock_guard<std::mutex> lock(mutex);
  if (FindLocked(target, source) == nullptr) first = new Dependence{target, source, {}, first};
}

void DependOn(Device target, Device source, QueuePoint point) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex);
    SetLocked(*FindLocked(target, source), point);
  }
  // The loss may have been told before.
  if (IsLost(source)) internal::LoseDependents(source);
}

namespace internal {

void CheckSourcesSlowly(Device target, const char* who) {
  Places asked;
  AskSources(target, asked);
  CheckNotLost(target, who);
}

void LoseDependents(Device source) noexcept {
  Dependence each;
  // What it waited for itself matters no more.
  while (FindUnderWay([&](const Dependence& of) { return of.target == source; }, &each)) End(each);
  while (FindUnderWay([&](const Dependence& of) { return of.source == source; }, &each)) {
    End(each);
    try {
      LoseDevice(each.target, absl::StrCat("a copy from ", DeviceName(source),
                                           " had not been seen to end when that was lost (", CauseOfLoss(source), ")"));
    } catch (const std::bad_alloc&) {
      LoseDevice(each.target, "a device that it was copying from was lost");
    }
  }
}

void ForgetDependencesForTesting(Device device) noexcept {
  Dependence each;
  const auto is_of = [&](const Dependence& of) { return of.target == device || of.source == device; };
  while (FindUnderWay(is_of, &each)) End(each);
}

}  // namespace internal
}  // namespace tidepool
