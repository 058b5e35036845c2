// What a recording of memory holds, whoever made it: MemoryProfile, or a reader of another program's files. What
// pages and traces are written from. Plain values.
//
// Bytes over time are `steps` and the requests of cycles together: steps are changes of the ledger that no recorded
// cycle explains. `arrays` are those outside of cycles; the ledger has counted them in steps, so they add nothing.
#ifndef TIDEPOOL_MEMORY_PROFILE_PROFILE_DATA_H_
#define TIDEPOOL_MEMORY_PROFILE_PROFILE_DATA_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tidepool {

// Of an array: the end of the recording found it alive.
inline constexpr int64_t kAliveAtEnd = std::numeric_limits<int64_t>::max();

struct ProfileArray {
  enum Flag : uint8_t {
    kOutside = 1,    // of a cycle, and not in its pages
    kMissed = 2,     // a plan existed for it and could not be followed
    kLeaked = 4,     // outlived its cycle, or is found to be leaked
    kAtStart = 8,    // alive when the recording began
    kImported = 16,  // owned elsewhere
  };

  int64_t born = 0;  // nanoseconds since the recording began; of a cycle's: since the cycle began
  int64_t died = kAliveAtEnd;
  int64_t bytes = 0;    // as asked for
  int64_t taken = 0;    // with alignment: what the ledger counts
  int64_t offset = -1;  // within its place; -1: unknown
  // Of ProfileData::strings:
  uint32_t name = 0;   // "relu: f32 [64, 128]": the operator that wrote it first, type and shape
  uint32_t site = 0;   // call stack, innermost first, " < " between
  uint32_t owner = 0;  // who asked for it: "network #layer conv2"
  uint32_t place = 0;  // of ProfileData::places
  uint8_t kind = 0;    // of ProfileData::kinds
  uint8_t flags = 0;
};

// Where arrays lie: a workspace's pages, a device's heap, segments of another allocator.
struct ProfilePlace {
  uint32_t name = 0;    // "workspace step"
  uint32_t device = 0;  // of ProfileData::devices
  int64_t bytes = 0;    // the most there were of it; 0: unknown
};

// A change of what the ledger counts beside the requests of recorded cycles.
struct ProfileStep {
  int64_t time = 0;
  int64_t bytes = 0;  // the change
  uint32_t device = 0;
  uint32_t owner = 0;  // a string
  uint8_t kind = 0;
  bool at_start = false;  // the live set when the recording began
};

// What a cycle requested. Cycles that are alike in all of it but time share one.
struct ProfileCycleKind {
  uint32_t place = 0;
  uint32_t owner = 0;  // a string: of the workspace, whose unused pages shrink by what is in use
  std::vector<ProfileArray> requests;  // in their order
  std::vector<uint32_t>
      released_after;     // by request: after how many requests it went; their number: at the end
  int64_t duration = 0;   // of the one that the times are of
  int64_t bound = 0;      // the most bytes that were alive at once: no placement takes less
  int64_t peak = 0;       // bytes of pages it reached, and the most outside at once
  int64_t requested = 0;  // what no reuse would take
  uint32_t misses = 0, outside = 0, leaked = 0;
};

// Cycles of one kind, one after another with none of another kind of the workspace between them.
struct ProfileCycles {
  uint32_t kind = 0;
  uint32_t count = 1;
  uint64_t first_generation = 0;
  int64_t begin = 0, end = 0;  // of the first and the last
};

struct ProfileData {
  std::string title;
  std::string subtitle;
  int64_t duration = 0;  // nanoseconds
  std::string began;     // wall clock, UTC: "2026-05-01 12:00:00"; empty: unknown
  std::vector<std::string> strings = {""};
  std::vector<std::string> kinds;
  std::vector<std::string> devices;
  std::vector<std::string> tiers;     // by device: "host memory", "device memory"
  std::vector<int64_t> device_peaks;  // by device, as the ledger has them; empty: unknown
  std::vector<ProfilePlace> places;
  std::vector<ProfileArray> arrays;
  std::vector<ProfileStep> steps;  // in the order of time
  std::vector<ProfileCycleKind> cycle_kinds;
  std::vector<ProfileCycles> cycles;  // in the order of their beginning
  // In words: what is missing or coarser than it was.
  std::vector<std::string> notes;
};

// Of ProfileData::kinds as MemoryKindName has them.
std::vector<std::string> MemoryKindNames();

// Fills bound, peak, requested and the counts from the requests.
void MeasureCycleKind(ProfileCycleKind& kind);

// What was in use, and what was taken with it ("unreferenced" pages), when all steps and cycles until the end are
// added up: by device and kind. What a ledger says at the end of a recording is that.
std::vector<std::vector<int64_t>> BytesAtEnd(const ProfileData& data);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_PROFILE_DATA_H_
