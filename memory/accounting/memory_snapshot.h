// What the ledger says at one moment, and how two moments differ. Plain values.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_SNAPSHOT_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_SNAPSHOT_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool {

struct MemoryUsage {
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

// One device's part of a snapshot.
struct DeviceMemory {
  Device device;
  std::array<MemoryUsage, kMemoryKinds> kinds;
  MemoryUsage total;  // all kinds together

  const MemoryUsage& operator[](MemoryKind kind) const { return kinds[static_cast<int>(kind)]; }
};

// What one owner, or one tag of an owner, holds on a device, those below it included.
struct OwnerMemory {
  Device device;
  std::string owner;  // path: "network/workspace training"; "process": everything
  std::string tag;    // empty: the owner itself, its tags included
  std::array<MemoryUsage, kMemoryKinds> kinds;
  MemoryUsage total;
  int64_t own_bytes = 0;  // of total.current_bytes: not below another node
  int64_t merged = 0;     // workspaces that are gone, which it stands for (owner_lease.h); 0: none

  const MemoryUsage& operator[](MemoryKind kind) const { return kinds[static_cast<int>(kind)]; }
};

struct MemorySnapshot {
  std::vector<DeviceMemory> devices;  // those with anything ever counted; the host is always first
  std::vector<OwnerMemory> owners;    // of each device: parents before children
  int64_t system_allocations = 0;     // how often tensor memory was asked of the system, ever
  int64_t system_releases = 0;
  int64_t leaked_arrays = 0;                  // of all workspaces, ever
  std::vector<DeviceMirrorCounters> mirrors;  // copies between devices and the host, ever
  uint64_t host_fallbacks = 0;  // operators meant for a device that ran on the host, ever
  SpillCounters spilled;        // of the tier below memory: spill files
  std::vector<DeviceSpillTier> spill_tiers;  // before them, by the device of their memory

  const DeviceMemory& operator[](Device device) const;  // throws kNotFound
  // Throws kNotFound, naming the owners there are.
  const OwnerMemory& Of(const std::string& owner, const std::string& tag = "",
                        Device device = Host()) const;
  // Bytes under `tag` (as MemoryOwner::Tag() gives it), whoever the owner is; 0 when unknown.
  int64_t TaggedBytes(const std::string& tag, Device device = Host()) const;

  // A table: one line per device and kind, one per device with mirrors, what spill files moved, and one per device with tiers.
  std::string ToString() const;
  // A table: one line per owner and tag that holds or held memory, largest kinds named.
  std::string OwnersToString() const;
  // An object: "devices", "owners", "mirrors", "spilled", "spill_tiers", "system_allocations", ...; docs/memory_ledger.md has all.
  std::string ToJson() const;
};

// after - before, of what differs.
struct MemoryDifference {
  struct Line {
    Device device;
    std::string owner;  // empty: the whole device
    std::string tag;
    MemoryKind kind;
    int64_t current_bytes;  // change
    int64_t peak_bytes;     // change
  };
  std::vector<Line> lines;  // devices first, then owners, in the order of the snapshot
  int64_t system_allocations = 0;
  int64_t system_releases = 0;
  int64_t leaked_arrays = 0;

  bool empty() const {
    return lines.empty() && system_allocations == 0 && system_releases == 0 && leaked_arrays == 0;
  }
  // Change of the bytes now on `device` of that kind; 0 when there is none.
  int64_t CurrentBytes(Device device, MemoryKind kind) const;
  std::string ToString() const;
  std::string ToJson() const;
};

MemoryDifference Difference(const MemorySnapshot& before, const MemorySnapshot& after);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_SNAPSHOT_H_
