// What a memory snapshot of PyTorch says, device by device, before a page or a record is made of it
// (pytorch_snapshot.h, which says what is read).
#ifndef TIDEPOOL_MEMORY_PROFILE_SNAPSHOT_ENTRIES_H_
#define TIDEPOOL_MEMORY_PROFILE_SNAPSHOT_ENTRIES_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidepool/memory/profile/segment_layout.h"

namespace tidepool {

struct SnapshotAllocation {
  int64_t address, size,
      requested;         // bytes; `requested` is `size` where the snapshot does not tell it
  int64_t born, died;    // nanoseconds since the snapshot's first entry; kAliveAtEnd
  uint32_t site, owner;  // of SnapshotEntries::strings
  uint8_t flags;         // ProfileArray::kAtStart or 0
  int64_t born_entry, died_entry;  // numbers of entries, from 1: what order those of a device have
};

struct SnapshotDevice {
  std::vector<SnapshotAllocation> allocations;
  std::map<int64_t, int64_t> segments;                // at the end: bytes by address
  std::vector<SegmentLayout::Segment> seen;           // ever
  std::vector<std::pair<int64_t, int64_t>> reserved;  // time, and the change of bytes of segments
  int64_t reserved_at_start = 0;
};

struct SnapshotEntries {
  std::vector<std::string> strings = {""};
  std::map<uint32_t, SnapshotDevice> devices;
  int64_t duration = 0;                   // nanoseconds, at least 1000
  int64_t others = 0, out_of_memory = 0;  // entries that are of no allocation
};

// Throws kDataLoss, with `what` in front.
SnapshotEntries ReadSnapshotEntries(std::string_view bytes, const std::string& what);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_SNAPSHOT_ENTRIES_H_
