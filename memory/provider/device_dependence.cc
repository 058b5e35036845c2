#include "tidepool/memory/provider/device_dependence.h"

#include <bitset>
#include <memory>
#include <mutex>

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
  std::mutex* order;  // of copies between the two; never destroyed
};
// But for orders, taken last, and nothing is called under it: devices are lost under locks of theirs.
std::mutex mutex;
constinit Dependence* first =
    nullptr;  // never destroyed: arrays are copied in static destructors, too

// Copies under way between so many pairs of devices are looked at together.
constexpr int kMostAsked = 256;

size_t PlaceOf(Device device) {
  return static_cast<size_t>(device.type.number() * kMaxDevicesPerType + device.index);
}

Dependence* FindLocked(Device target, Device source) {
  Dependence* each = first;
  while (each != nullptr && !(each->target == target && each->source == source)) each = each->next;
  return each;
}

void SetLocked(Dependence& dependence, QueuePoint point) {
  dependences_under_way.fetch_add((point.value != 0) - (dependence.point.value != 0),
                                  std::memory_order_release);
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

// What a device waited for itself ends last, when all that depends on it is lost: whoever finds it ended finds them lost, and
// whoever does not does the same.
void LoseDependentsOf(Device source, std::bitset<kDevicePlaces>& visited) noexcept {
  visited.set(PlaceOf(source));
  Dependence each;
  while (FindUnderWay(
      [&](const Dependence& of) { return of.source == source && !visited[PlaceOf(of.target)]; },
      &each)) {
    internal::LoseDependent(each.target, source);
    LoseDependentsOf(each.target, visited);
  }
  while (FindUnderWay([&](const Dependence& of) { return of.target == source; }, &each)) End(each);
}

}  // namespace

void PrepareToDepend(Device target, Device source) {
  CheckDevice("copy between devices", target);
  CheckDevice("copy between devices", source);
  std::lock_guard<std::mutex> lock(mutex);
  if (FindLocked(target, source) == nullptr) {
    auto order = std::make_unique<std::mutex>();
    first = new Dependence{target, source, {}, first, order.get()};
    order.release();
  }
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

std::mutex& OrderOfDependences(Device target, Device source) noexcept {
  std::lock_guard<std::mutex> lock(mutex);
  return *FindLocked(target, source)->order;
}

// All that is under way to the target, and to its sources, and theirs, is asked for: a device that is found to be lost is lost
// with its dependents. Nothing is ended before all have answered, as any of them may be what another gave.
void AskSources(Device target) noexcept {
  if (target.index >= kMaxDevicesPerType) return;
  std::bitset<kDevicePlaces> reached;
  reached.set(PlaceOf(target));
  Dependence passed[kMostAsked];
  int count = 0;
  const auto is_new = [&](const Dependence& of) {
    if (!reached[PlaceOf(of.target)]) return false;
    for (int i = 0; i < count; ++i) {
      if (passed[i].target == of.target && passed[i].source == of.source) return false;
    }
    return true;
  };
  for (Dependence each; count < kMostAsked && FindUnderWay(is_new, &each); ++count) {
    reached.set(PlaceOf(each.source));
    bool has_passed = false;
    try {
      has_passed = FindDeviceProvider(each.source)->HasPassed(each.point);
    } catch (...) {
      // It is lost, and its dependents with it, or did not answer this time.
    }
    passed[count] = each;
    if (!has_passed) passed[count].point = {};
  }
  if (count == kMostAsked) {  // there may be more: nothing is ended, but who is lost is known
    for (const Dependence& each : passed) {
      if (IsLost(each.source)) LoseDependents(each.source);
    }
    return;
  }
  // The points of a device that is lost may pass as well. Whoever tells of its loss may not have come to its dependents.
  for (int i = 0; i < count; ++i) {
    if (IsLost(passed[i].source)) {
      LoseDependents(passed[i].source);
    } else if (passed[i].point.value != 0) {
      End(passed[i]);
    }
  }
}

void LoseDependents(Device source) noexcept {
  std::bitset<kDevicePlaces> visited;
  LoseDependentsOf(source, visited);
}

void ForgetDependencesForTesting(Device device) noexcept {
  Dependence each;
  const auto is_of = [&](const Dependence& of) {
    return of.target == device || of.source == device;
  };
  while (FindUnderWay(is_of, &each)) End(each);
}

}  // namespace internal
}  // namespace tidepool
