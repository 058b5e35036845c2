// Configuration of a workspace: a plain value, validated as a whole when a workspace is made.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CONFIG_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CONFIG_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/policies.h"

namespace tidepool {

// Extra memory beyond an initial or learned size: a ratio of it or a number of bytes.
class Overallocation {
 public:
  // A share of the size, 0.3 for 30 %; so many bytes whatever the size. See IsValid().
  static Overallocation Ratio(double ratio) { return Overallocation(ratio, -1); }
  static Overallocation Bytes(int64_t bytes) { return Overallocation(bytes < 0 ? -1 : 0, bytes); }

  // Truncated to whole bytes; at most SIZE_MAX / 4.
  size_t ExtraFor(size_t bytes) const {
    constexpr size_t kMost = SIZE_MAX / 4;
    if (bytes_ >= 0) return std::min(static_cast<size_t>(bytes_), kMost);
    const double extra = static_cast<double>(bytes) * ratio_;
    return extra < static_cast<double>(kMost) ? static_cast<size_t>(extra) : kMost;
  }
  // A ratio beyond it is a slip: pages of more than a hundred times what is needed are of no use.
  static constexpr double kMostRatio = 100;

  // A ratio from 0 to kMostRatio, or bytes that are not negative.
  bool IsValid() const { return bytes_ >= 0 || (ratio_ >= 0 && ratio_ <= kMostRatio); }
  // As it was made: the ratio, or the bytes.
  double value() const { return bytes_ != -1 ? static_cast<double>(bytes_) : ratio_; }

  friend bool operator==(const Overallocation&, const Overallocation&) = default;

 private:
  Overallocation(double ratio, int64_t bytes) : ratio_(ratio), bytes_(bytes) {}
  double ratio_;
  int64_t bytes_;  // negative: use the ratio
};

// Without a word of its own a workspace is good for everybody: it learns lifetimes, a plan for each kind of
// cycle that comes again, serves what does not fit, and grows for it before the next cycle. Policies that
// contradict each other are refused with reasons, and so is most of what would have no effect. kAlways,
// debug modes and max_size take effect whatever else is said. These are taken though they do nothing:
// overallocation_limit without kOverallocate; with kNone min_size, and kReallocate beyond what max_size
// refuses (nothing grows); plan_search_seconds where no lifetimes are learned; ring_stall_limit_ms without
// a ring.
//
// Sizes are in bytes; one that was negative before it was converted is refused.
struct WorkspaceConfig {
  // Bytes reserved at construction; 0: learn. Under kFail all there is, rounded down to the alignment.
  size_t initial_size = 0;

  // How large pages become, and what becomes of requests; what each policy says is in policies.h.
  size_t min_size = 0;  // lower bound of a learned size
  size_t max_size = 0;  // of the pages, and under kReallocate of what a cycle needs; 0: none
  Overallocation overallocation_limit = Overallocation::Ratio(0.3);  // with kOverallocate
  AllocationPolicy policy_allocation = AllocationPolicy::kStrict;
  LearningPolicy policy_learning = LearningPolicy::kTraining;
  int cycles_before_initialization = 0;  // kOverTime: cycles to learn from; 0: until Initialize()
  MirroringPolicy policy_mirroring = MirroringPolicy::kEnabled;  // all the same on the host
  SpillPolicy policy_spill = SpillPolicy::kReallocate;
  ResetPolicy policy_reset = ResetPolicy::kBlockLeft;
  LocationPolicy policy_location = LocationPolicy::kRam;
  // kMmap only: the file, made when missing and extended when shorter than initial_size; a longer one
  // sets the size. Empty: a temporary file that is gone afterwards, also after a crash. Either way
  // its blocks are allocated, its length a multiple of the alignment, and nobody else may map it; the pages are the same memory
  // in a child of fork().
  std::string temp_file_path;
  // Spills are taken in blocks of this size, 4096 bytes to 64 GiB, and kept.
  size_t temp_block_size = size_t{1} << 20;

  // Checks, fallbacks and layout; modes are those of policies.h.
  bool use_cycle_detector = true;                          // report arrays that outlive their cycle
  WorkspaceMode workspace_mode = WorkspaceMode::kEnabled;  // kSeparate: networks alone
  bool helper_allow_fallback = true;  // use the host kernel when an accelerated one cannot
  size_t helper_min_size = 0;         // smaller operands stay on the host kernel, in bytes
  size_t alignment = 64;  // of every request: a power of two, at least 16; devices may raise it
  DebugMode debug_mode = DebugMode::kDisabled;
  // A plan that is not at its lower bound is searched for a better one on a background thread of the
  // lowest priority: processor time, in seconds, for each plan. 0: never.
  double plan_search_seconds = 2;
  bool huge_pages = true;  // 2 MiB pages for large workspaces
  // Touch pages when they are taken: those of a learned size, and the first 64 MiB of an
  // initial_size. The rest of that is touched as cycles come to need it: from its third repetition
  // on at the latest a cycle has no page fault. Of more than 64 MiB on the host at most half of what is
  // available, and no more than the process had in memory before and, in all, 256 MiB: what is asked for and hardly
  // used stays untouched. Mapped files: at first use.
  bool prefault = true;

  // Rings only (policy_reset kEndOfBufferReached, ring.h). All sizes above are of one slot then.
  int ring_slots = 0;
  RingFullPolicy policy_ring_full = RingFullPolicy::kWait;
  int ring_max_temporary = 0;  // kSpill: temporary slots at a time, then it waits; 0: any number
  // More kept slots than this: an error to who keeps them, opening waits. 0: Keep() leaves one, and
  // readers who keep all are told after ring_stall_limit_ms.
  int ring_max_kept = 0;
  // Longest wait, for a slot or for a batch, while every slot or too many are kept and none is
  // released; 0: for ever.
  int ring_stall_limit_ms = 10000;

  // One plan, of lifetimes learned in the first cycle (kOptimized, not kTraining, which is the default's):
  // training steps of one shape. Steps of mixed shapes miss; they want the default.
  static WorkspaceConfig Training();
  // The default, by name: a plan for each shape (kTraining), for training and requests whose batch or length
  // varies.
  static WorkspaceConfig Inference();
  // ND4J's defaults, for programs that come from there: the first cycle's total and 30 %, which stays
  // (kFirstLoop, kOverallocate, kExternal); requests one behind the other.
  static WorkspaceConfig Nd4j();
  // A ring of `slots`, which learn a batch's lifetimes once for all of them. (kTraining: of each kind.)
  static WorkspaceConfig Ring(int slots);
  // A mapping of `path`: requests of each cycle one behind the other from its beginning on, so that
  // the same requests find the same bytes, also after opening it again.
  static WorkspaceConfig MappedFile(std::string path);

  // Switched off, by either of the two ways (policies.h): arrays are made on the heap.
  bool passes_through() const {
    return workspace_mode == WorkspaceMode::kNone || debug_mode == DebugMode::kBypassEverything;
  }
  // Everything that is wrong on `device`, one reason each; empty when the configuration is legal.
  std::vector<std::string> Reasons(Device device = Host()) const;
  // Throws kInvalidArgument with all Reasons(), naming the workspace `id`.
  void Validate(const std::string& id, Device device = Host()) const;

  friend bool operator==(const WorkspaceConfig&, const WorkspaceConfig&) = default;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_CONFIG_H_
