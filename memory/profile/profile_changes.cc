#include "tidepool/memory/profile/profile_changes.h"

#include <algorithm>
#include <string>

namespace tidepool {
namespace {

// `time` of a cycle that takes `duration`, in one that takes `length`.
int64_t Stretched(int64_t time, int64_t duration, int64_t length) {
  if (duration <= 0 || length == duration) return std::min(time, length);
  return static_cast<int64_t>(static_cast<__int128>(time) * length / duration);
}

uint8_t KindNamed(const ProfileData& data, const char* name, uint8_t otherwise) {
  const auto found = std::find(data.kinds.begin(), data.kinds.end(), name);
  return found == data.kinds.end() ? otherwise : static_cast<uint8_t>(found - data.kinds.begin());
}

}  // namespace

size_t NumChanges(const ProfileData& data, bool by_peaks) {
  size_t count = data.steps.size();
  for (const ProfileCycles& cycles : data.cycles) {
    count += by_peaks ? 4 : 4 * cycles.count * data.cycle_kinds[cycles.kind].requests.size();
  }
  return count;
}

std::vector<ProfileChange> ChangesOf(const ProfileData& data, bool by_peaks) {
  const uint8_t unused = KindNamed(data, "unreferenced", UINT8_MAX);
  std::vector<ProfileChange> changes;
  changes.reserve(NumChanges(data, by_peaks));
  for (const ProfileStep& step : data.steps)
    changes.push_back({step.time, step.bytes, step.device, step.kind});
  for (const ProfileCycles& cycles : data.cycles) {
    const ProfileCycleKind& kind = data.cycle_kinds[cycles.kind];
    const uint32_t device = data.places[kind.place].device;
    const auto alive = [&](int64_t from, int64_t to, int64_t bytes, uint8_t of) {
      for (const auto& [time, change] : {std::pair{from, bytes}, std::pair{to, -bytes}}) {
        changes.push_back({time, change, device, of});
        if (unused != UINT8_MAX) changes.push_back({time, -change, device, unused});
      }
    };
    const uint8_t of = kind.requests.empty() ? 0 : kind.requests.front().kind;
    if (by_peaks) {
      alive(cycles.begin, cycles.end, kind.bound, of);
      continue;
    }
    const int64_t length = (cycles.end - cycles.begin) / std::max<int64_t>(1, cycles.count);
    for (uint32_t n = 0; n < cycles.count; ++n) {
      const int64_t begin = cycles.begin + n * length;
      for (const ProfileArray& request : kind.requests) {
        alive(begin + Stretched(request.born, kind.duration, length),
              begin + Stretched(std::min(request.died, kind.duration), kind.duration, length),
              request.taken, request.kind);
      }
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const ProfileChange& a, const ProfileChange& b) { return a.time < b.time; });
  return changes;
}

}  // namespace tidepool
