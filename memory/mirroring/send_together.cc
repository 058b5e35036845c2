// What several mirrors have stale on the device, by one call of the device's. Part of BufferMirror.
#include <algorithm>
#include <functional>
#include <vector>

#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/provider/host_copies_together.h"

namespace tidepool {

void BufferMirror::SendTogether(const QueueTurn& turn, HostCopiesTogether& device,
                                absl::Span<const DeviceUse> uses, std::vector<QueuePoint>* points) {
  struct Part {
    BufferMirror* mirror;
    MirrorEvent event;
    size_t begin, end;
    size_t copies;  // of the mirror
  };
  // Turns are taken before mutexes, and nobody else takes one mirror's while holding another's.
  std::vector<BufferMirror*> mirrors;
  for (const DeviceUse& use : uses) {
    if (BufferMirror* const mirror = Find(*use.buffer)) mirrors.push_back(mirror);
  }
  std::sort(mirrors.begin(), mirrors.end(), std::less<>());
  mirrors.erase(std::unique(mirrors.begin(), mirrors.end()), mirrors.end());
  std::vector<std::unique_lock<std::mutex>> holds;
  for (BufferMirror* mirror : mirrors) holds.emplace_back(mirror->mutex_);
  std::vector<Part> parts;
  std::vector<HostCopiesTogether::Copy> copies;
  std::vector<QueuePoint> after;
  const auto send = [&] {
    if (!copies.empty()) {
      points->reserve(points->size() + 1);
      const QueuePoint point = device.QueueCopiesFromHost(copies, after);
      points->push_back(point);
      size_t next = 0;
      for (const Part& part : parts) {
        BufferMirror& mirror = *part.mirror;
        if (part.copies > 0) mirror.sent_.push_back(point);  // there is room
        for (size_t i = 0; i < part.copies; ++i)
          CountMirrorCopy(mirror.device_name_, mirror.buffer_.owner, true, copies[next++].bytes);
      }
    }
    for (const Part& part : parts) {
      part.mirror->freshness_.Apply(part.event, part.begin, part.end);
      part.mirror->used_on_device_ = true;
    }
    parts.clear();
    copies.clear();
    after.clear();
  };
  for (const DeviceUse& use : uses) {
    BufferMirror* const mirror = Find(*use.buffer);
    if (mirror == nullptr) continue;
    // What is stale of a buffer depends on the uses before.
    for (const Part& part : parts) {
      if (part.mirror != mirror) continue;
      send();
      break;
    }
    Part part{mirror, use.writes ? MirrorEvent::kDeviceWrite : MirrorEvent::kDeviceRead, use.begin,
              use.end, 0};
    const std::vector<FreshnessMap::Range> ranges =
        mirror->freshness_.CopiesFor(part.event, part.begin, part.end);
    part.copies = ranges.size();
    if (ranges.empty()) {
      if (mirror->host_ != nullptr) CountMirrorAvoided(mirror->device_name_, true);
    } else {
      after.push_back(mirror->PrepareToSend(turn, 1));
      for (const FreshnessMap::Range& range : ranges)
        copies.push_back(
            {mirror->data_ + range.begin, mirror->host_ + range.begin, range.end - range.begin});
    }
    parts.push_back(part);
  }
  send();
}

}  // namespace tidepool
