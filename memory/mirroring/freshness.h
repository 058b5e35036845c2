// Freshness: which side of a buffer with a host and a device copy has the newest bytes, by range.
//
// The rules are one table: what an access of a range does to each state, and which copy must come
// before it. FreshnessMap keeps the states of a buffer's ranges.
//
// Threads: none of its own. Cost: a walk over the ranges, of which there are few.
#ifndef TIDEPOOL_MEMORY_MIRRORING_FRESHNESS_H_
#define TIDEPOOL_MEMORY_MIRRORING_FRESHNESS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidepool {

// Who has the newest bytes.
enum class Freshness : uint8_t { kNobody, kBoth, kHost, kDevice };  // kNobody: never written
inline constexpr int kFreshnessStates = 4;

// What happens to a range of bytes, on the side that is named.
enum class MirrorEvent : uint8_t {
  kHostRead,
  kHostWrite,      // of some of the bytes
  kHostOverwrite,  // of all of them
  kDeviceRead,
  kDeviceWrite,
  kDeviceOverwrite,
  kHostDropped,  // the host copy's memory goes
};
inline constexpr int kMirrorEvents = 7;  // how many there are

// Which copy has to be made.
enum class MirrorCopy : uint8_t { kNone, kToHost, kToDevice };

// What an event takes and makes of a state.
struct MirrorStep {
  MirrorCopy copy;  // comes before the event
  Freshness next;   // who has the newest bytes after it
};

namespace internal {
inline constexpr MirrorStep kStay[] = {{MirrorCopy::kNone, Freshness::kNobody},
                                       {MirrorCopy::kNone, Freshness::kBoth},
                                       {MirrorCopy::kNone, Freshness::kHost},
                                       {MirrorCopy::kNone, Freshness::kDevice}};
inline constexpr MirrorStep kNobody = kStay[0], kBoth = kStay[1], kHost = kStay[2],
                            kDevice = kStay[3];
inline constexpr MirrorStep kSendThenBoth{MirrorCopy::kToDevice, Freshness::kBoth},
    kSendThenDevice{MirrorCopy::kToDevice, Freshness::kDevice},
    kFetchThenBoth{MirrorCopy::kToHost, Freshness::kBoth},
    kFetchThenHost{MirrorCopy::kToHost, Freshness::kHost};
}  // namespace internal

// Rows: Freshness. Columns: MirrorEvent.
inline constexpr MirrorStep kMirrorTable[kFreshnessStates][kMirrorEvents] = {
    {internal::kNobody, internal::kHost, internal::kHost, internal::kNobody, internal::kDevice,
     internal::kDevice, internal::kNobody},
    {internal::kBoth, internal::kHost, internal::kHost, internal::kBoth, internal::kDevice,
     internal::kDevice, internal::kDevice},
    {internal::kHost, internal::kHost, internal::kHost, internal::kSendThenBoth,
     internal::kSendThenDevice, internal::kDevice, internal::kSendThenDevice},
    {internal::kFetchThenBoth, internal::kFetchThenHost, internal::kHost, internal::kDevice,
     internal::kDevice, internal::kDevice, internal::kDevice},
};
// The table's.
constexpr MirrorStep StepOf(Freshness state, MirrorEvent event) {
  return kMirrorTable[static_cast<int>(state)][static_cast<int>(event)];
}

// The states of a buffer's bytes, by range.
class FreshnessMap {
 public:
  // More ranges than these are joined: a short one that is fresh on both sides counts as stale on one
  // of them, and is copied once too often. Where none is left to join there may be more.
  static constexpr size_t kMostRanges = 32;

  // Bytes of one state.
  struct Range {
    size_t begin, end;  // offsets in the buffer
    Freshness state;    // of all of them
  };

  // So many bytes, all in that state.
  FreshnessMap(size_t bytes, Freshness state);

  // Sorted, without gaps, neighbours of different states.
  const std::vector<Range>& ranges() const { return ranges_; }

  // Whether there are more ranges than kMostRanges.
  bool is_crowded() const { return ranges_.size() > kMostRanges; }
  // The newest bytes of all of [begin, end) are on the host (else: the device).
  bool IsFreshOn(bool host, size_t begin, size_t end) const;

  // The parts of [begin, end) that must be copied before the event, in order; neighbours are one.
  std::vector<Range> CopiesFor(MirrorEvent event, size_t begin, size_t end) const;
  // They have been, and it happens. Throws std::bad_alloc at most, and is as before then.
  void Apply(MirrorEvent event, size_t begin, size_t end);
  // The device's bytes may have changed unseen: only what the host wrote since is newer. Throws as Apply.
  void MakeDeviceNewer();

 private:
  bool JoinSome();

  std::vector<Range> ranges_, next_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_FRESHNESS_H_
