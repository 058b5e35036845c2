// Writes down what the ledger, the heap and workspaces tell, while one recording runs.
//
// There is one for the process, which is never destroyed. Cycles that are alike in requests, places, releases and
// sites are kept once, with the times of each. Beyond `max_records` arrays and requests are counted and not kept;
// changes of the ledger are merged into steps that are ever longer (a 2,000th of the time so far), so that totals
// stay right however long it runs.
//
// Threads: any. Cost while it runs: 50,000 instructions for each array and request (the call stack), 100 bytes for
// each that is kept.
#ifndef TIDEPOOL_MEMORY_PROFILE_RECORDER_H_
#define TIDEPOOL_MEMORY_PROFILE_RECORDER_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/profile/profile_data.h"

namespace tidepool::internal {

class MemoryRecorder final : public MemoryListener, private LedgerObserver {
 public:
  static MemoryRecorder& Global();

  // False: one is running.
  bool Start(size_t max_records, bool sites);
  void Stop();
  // What was recorded last. After Stop().
  ProfileData Collect() const;

  void Added(Device device, MemoryKind kind, int64_t bytes,
             const MemoryOwner& owner) noexcept override;
  void Owned(Device device, int64_t bytes, const MemoryOwner& owner) noexcept override;
  void Made(Buffer& buffer) noexcept override;
  void Gone(const Buffer& buffer) noexcept override;
  void Requested(const RecordedCycleRequest& request) noexcept override;
  void Ended(const RecordedCycle& cycle) noexcept override;
  void Written(const Buffer& buffer, const char* op, std::string_view what) noexcept override;

 private:
  static constexpr int kFrames = 24;
  using Stack = std::array<void*, kFrames>;

  struct Array {
    int64_t time, bytes, taken, offset;
    int64_t died;
    uint64_t id;
    const MemoryOwner* owner;
    uint32_t stack, name;
    Device device;
    uint8_t kind, flags;
    uint32_t released_after;
    bool SameRequest(const Array& other) const;
  };
  struct Step {
    int64_t time, bytes;
    const MemoryOwner* owner;
    Device device;
    uint8_t kind;
    bool at_start;
  };
  struct OpenCycle {
    uint64_t generation = 0;
    std::vector<Array> requests;
    bool complete = true;
  };
  struct CycleKind {
    uint64_t workspace;
    std::vector<Array> requests;
    int64_t duration;
  };
  struct Cycle {
    uint32_t kind;
    uint32_t count;
    uint64_t generation;
    int64_t begin, end;
  };
  struct Place {
    std::string name;
    const MemoryOwner* owner;
    Device device;
    int64_t bytes;
  };
  struct PendingKey {
    Device device;
    uint8_t kind;
    const MemoryOwner* owner;
    friend bool operator==(const PendingKey&, const PendingKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const PendingKey& key) {
      return H::combine(std::move(h), key.device.type.number(), key.device.index, key.kind,
                        key.owner);
    }
  };

  MemoryRecorder() = default;
  void Observe(const LedgerReading& reading) noexcept override;

  // All of these need mutex_ held.
  int64_t Now() const;
  bool HasRoom(size_t count = 1) const { return records_ + count <= max_records_; }
  uint32_t StackHere();
  void AddStep(Device device, MemoryKind kind, int64_t bytes, const MemoryOwner* owner,
               bool at_start = false);
  void FlushPending(int64_t now);
  void Clear();
  void AddBaseline();
  void FindResidual(const LedgerReading& reading);
  uint32_t CycleKindOf(uint64_t workspace, std::vector<Array> requests, int64_t duration);
  ProfileArray Export(const Array& array, const std::vector<uint32_t>& sites, ProfileData& data,
                      absl::flat_hash_map<const MemoryOwner*, uint32_t>& owners) const;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  bool running_ = false;
  bool has_baseline_ = false;   // devices that come from here on begin with nothing
  bool traced_before_ = false;  // MemoryTracing was on by somebody else
  bool with_sites_ = true;
  size_t max_records_ = 0;
  size_t records_ = 0;
  int64_t dropped_arrays_ = 0, dropped_cycles_ = 0, partial_cycles_ = 0;
  int64_t origin_ = 0, duration_ = 0;
  std::string began_;
  std::vector<Array> arrays_;
  absl::flat_hash_map<uint64_t, uint32_t> heap_;  // by id, alive: of arrays_
  absl::flat_hash_map<uint64_t, std::pair<uint64_t, uint32_t>> requests_;  // by id: workspace, slot
  std::map<uint64_t, OpenCycle> open_;                                     // by workspace
  std::vector<CycleKind> cycle_kinds_;
  absl::flat_hash_map<uint64_t, std::vector<uint32_t>> kinds_by_hash_;
  std::vector<Cycle> cycles_;
  absl::flat_hash_map<uint64_t, size_t> last_cycle_;  // of a workspace: of cycles_
  std::map<uint64_t, Place> places_;                  // of workspaces
  std::vector<Step> steps_;
  int64_t coarse_since_ = -1, last_flush_ = 0;
  absl::flat_hash_map<PendingKey, int64_t> pending_;
  std::vector<Stack> stacks_;
  absl::flat_hash_map<Stack, uint32_t> stack_numbers_;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, uint32_t> name_numbers_;
  struct DeviceTotals {
    bool known = false;
    std::array<int64_t, kMemoryKinds> added = {};  // by steps, without pages
    int64_t owned = 0;
    int64_t residual = 0;  // in use by workspaces, and of no recorded cycle
    int64_t peak = 0;
  };
  std::map<std::pair<int, int>, DeviceTotals> devices_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_PROFILE_RECORDER_H_
