// KeptBlocks: single blocks of a device that are given back while work uses them, and used again behind it.
//
// A block that is released keeps the points behind the work of each queue that has used it, and behind its
// copies. Nobody waits then. What it is used for next does: the queue that it is allocated in continues
// behind these points, as far as they are another queue's and have not passed; a copy that is the first to
// use it begins behind them (EarlierUses), and not behind what that queue has besides. Which block serves:
//   1. one that nobody uses any more, of whichever queue;
//   2. one that was used in the same queue alone, whose order is enough, or that only copies use still. Not while
//      some of its size wait that copies have filled, and fewer than kMostFilled: the next copy would wait for the
//      work that reads the last one, so those take turns;
//   3. where kMostWaiting of its size wait, the one that waits longest, of whichever queue;
//   4. one of the source's. What nobody uses any more goes back to it before, as much as is asked for, so
//      that what is kept does not stand beside what the source could make of it; where it refuses, all of that;
//   5. where it refuses then, one that is up to twice as large, also one that another queue still uses, and when
//      there is none the source again after all of them have gone back, which waits for what uses them.
// A block serves requests of up to an eighth less than it has. What is kept, and what blocks in use have
// beyond what was asked for, is unreferenced memory of the process in the ledger; above `most_bytes` what
// nobody uses any more goes back with the next request or release, what has been seen unused longest first. Memory
// goes back to the source only when its points have passed.
//
// The points of a queue pass in their order, so each queue's wait in a line: a request, and a release that leaves more
// than `most_bytes`, asks for those at the heads until one has not passed, and so knows of each block whether it is
// used. Copies have no order; where more than kMostQueues blocks wait for copies alone, so many are asked for in turn.
//
// Threads: any. Cost: a lock; a point for each release, and for several that are released together one for each
// queue; each point is asked for once when it has passed, and beside these a request asks for one of each queue and
// for kMostQueues copies at most. The device makes points and opens and closes queues without calling any of these.
#ifndef TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_H_
#define TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

class KeptBlocks {
 public:
  static constexpr int kMostFilled = 3, kMostWaiting = 8;  // of one size: rules 2 and 3 above
  static constexpr size_t kUnit = 512;                     // sizes of blocks are multiples of it

  // Where blocks come from.
  class Source {
   public:
    // At the alignment that KeptBlocks was told; its bytes are there behind `from`, whoever uses them. Null when
    // refused.
    virtual std::byte* TakeBlock(size_t bytes, QueuePoint* from) noexcept = 0;
    // Nobody uses it any more.
    virtual void GiveBlock(std::byte* data, size_t bytes) noexcept = 0;
    // Waits for all that is queued on the device: where it refuses a point, and where work has failed.
    virtual void FinishAll() noexcept = 0;

   protected:
    ~Source() = default;
  };
  // Since it was made, and now.
  struct Stats {
    int64_t taken = 0, given = 0;                             // from the source and back
    int64_t used_again = 0;                                   // requests that kept blocks served
    int64_t orders = 0;                                       // of queues behind earlier users
    int64_t asked = 0;                                        // points, whether they have passed
    size_t kept_blocks = 0, kept_bytes = 0, live_blocks = 0;  // now; live: in use by callers
    size_t counted_bytes = 0;                                 // on the ledger
  };

  // `device` and `source` outlive it. Throws as the ledger does.
  KeptBlocks(DeviceProvider& device, Source& source, size_t alignment, size_t most_bytes);
  // Nothing of it is in use.
  ~KeptBlocks() { Trim(); }
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;

  // These four as DeviceProvider's; the thread's queue comes behind whatever used the block.
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept;
  void NoteUsers(const std::byte* data, uint32_t queues) noexcept;
  void ReleaseMany(const DeviceProvider::Block* blocks, int count) noexcept;
  QueuePoint EarlierUses(const std::byte* data);

  // A copy beside the compute queues uses bytes at `at`, until `point`. Of other memory nothing is noted. Where there
  // is no memory for the note the copy is waited for. Throws kInternal when that fails.
  void NoteCopy(const std::byte* at, QueuePoint point);

  // Waits for what uses the kept blocks and gives all of them back. Returns their bytes.
  size_t Trim() noexcept;
  // Of those that nobody uses any more: for the Reclaimer, as it waits for no work of the device.
  size_t TrimUnused() noexcept;

  // Of one moment. Any thread.
  Stats stats() const;

 private:
  struct Block;
  struct EarlierUse {
    int queue;         // -1: a copy, or the source
    QueuePoint point;  // of a kept block: 0 once it has been seen to have passed
    Block* block = nullptr;
    EarlierUse* older = nullptr;  // of waiting_
    EarlierUse* newer = nullptr;
  };
  template <typename T>
  struct Line {
    void Add(T* each);
    void Remove(T* each);
    T* oldest = nullptr;
    T* newest = nullptr;
  };
  // Where a kept block is: who uses it still. Below kMostQueues: that queue, and copies perhaps.
  enum Home : int { kUnused = kMostQueues, kCopied, kSeveral, kHomes };
  struct Smaller {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const;
    bool operator()(const Block* a, size_t bytes) const;
    bool operator()(size_t bytes, const Block* b) const;
  };
  using BySize = std::set<Block*, Smaller>;
  struct Block {
    std::byte* base = nullptr;
    size_t bytes = 0;
    size_t spare = 0;  // beyond what was asked for, of one in use
    std::vector<EarlierUse>
        uses;  // of a kept one, which stay where they are, and the earlier ones of one in use
    std::vector<QueuePoint> copies;  // of one in use
    uint32_t users =
        0;  // compute queues, a bit each, as noted before its release; 0: the releasing thread's
    int queue = 0;  // it was allocated in
    bool filled_by_copy = false;
    bool kept = false;
    int home = kUnused;       // of a kept one
    uint64_t released = 0;    // counts releases
    BySize::node_type place;  // in kept_, so that a release needs no memory
    Block* older = nullptr;   // of unused_ and copied_; or the next of a chain
    Block* newer = nullptr;
  };
  class PointsOfQueues;

  // These need mutex_, TakeOut giving_ besides.
  Block* Find(const std::byte* at);
  bool HasPassed(QueuePoint point) noexcept;
  Block* FirstThatFits(int home, size_t bytes, size_t most) const;
  Block* Pick(size_t bytes, int queue) noexcept;
  Block* PickAny(size_t bytes, int queue) noexcept;
  void Keep(Block* block) noexcept;
  void Unkeep(Block* block) noexcept;
  void TakeIntoUse(Block* block, size_t bytes, int queue) noexcept;
  void Count() noexcept;
  size_t Beyond() const noexcept;  // most_bytes_
  Block* TakeOut(
      size_t
          bytes) noexcept;  // of the unused ones; a chain of at least so many bytes, out of the books
  // Who uses the kept ones still.
  static int HomeOf(const Block& block);
  Line<Block>* LineOf(int home);
  void Move(Block* block) noexcept;  // to where it belongs now
  void Look() noexcept;              // what has passed
  void NotePassed(EarlierUse* use) noexcept;
  void NotePassed(QueuePoint point) noexcept;
  QueuePoint PointBefore(uint64_t release) noexcept;
  void ForgetUsesBefore(uint64_t release) noexcept;

  // Without mutex_.
  bool NoteRelease(
      Block* block,
      PointsOfQueues& points) noexcept;  // needs noting_; false: the device must be waited for
  size_t Give(Block* chain) noexcept;    // needs giving_
  size_t GiveBack(size_t bytes) noexcept;
  Block* TakeFresh(size_t bytes, int queue) noexcept;
  void OrderBehind(const Block& block, int queue) noexcept;

  DeviceProvider& device_;
  Source& source_;
  const size_t alignment_, most_bytes_;

  std::mutex
      noting_;  // from a point until its block is kept, so that lines are in the order of points; before mutex_
  std::mutex giving_;  // held while blocks are in no books and on their way back; before mutex_
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::unique_ptr<Block>> all_;  // by base
  BySize kept_[kHomes];
  Line<EarlierUse>
      waiting_[kMostQueues];  // what each queue has not been seen to have done, of kept blocks
  Line<Block> copied_;        // that wait for copies alone
  Line<Block> unused_;
  uint64_t releases_ = 0;
  size_t spare_bytes_ = 0;
  Stats stats_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_KEPT_BLOCKS_H_
