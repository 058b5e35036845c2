// Spillables: what may go while nobody uses it, when a budget is crossed and giving back what nobody refers to was not enough.
//
//   SpillFile file({.folder = "/scratch"});
//   Spillables spillables(file);                       // from here on budgets ask it
//   SpillableArray cache(spillables, array);           // ndarray/spill/spillable_array.h
//
// The least recently used go first: those that are written to the file (nothing is written that has not changed since it was),
// then, where these are not enough, those that can be computed again. Only what serves the request goes: of its device, and of the
// owner whose limit is in its way, or of those below it. What is pinned, or has its bytes with somebody else, stays, and
// errors say so (MemoryBudget).
//
// Ownership: the file outlives it, and it its items. Threads: any. A budget's request, on whichever thread, waits for what it has
// written. Callbacks of memory_events.h and of the Reclaimer are in the middle of one: a pin that would have to wait is refused to
// them. Cost: a request that has to spill goes through all items; a use of one is a lock. fork(): not for children, whose budgets do
// without.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_
#define TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spill_state.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// What there is now, and what was done so far.
struct SpillablesStats {
  int64_t items = 0;                       // registered
  int64_t here_bytes = 0, away_bytes = 0;  // of them: in memory, in the file
  int64_t pinned_bytes = 0;                // of those here
  int64_t elsewhere_bytes = 0;             // likewise: their bytes are with somebody else as well
  int64_t recomputed_bytes = 0;            // of all: what is computed again, and never written
  // Ever:
  int64_t spills = 0, spilled_bytes = 0;    // let go of
  int64_t rewritten_bytes = 0;              // of these: written, as they had changed
  int64_t returns = 0, returned_bytes = 0;  // brought back
  int64_t failures = 0;                     // to let go

  // A line for people.
  std::string ToString() const;
};

class Spillables final : private Spiller {
 public:
  // One thing. Made and registered by what it is of; shared, so that it lives while it is moved.
  class Item {
   public:
    Item(Device its_device, MemoryOwner& its_owner, int64_t its_bytes, bool is_recomputed,
         std::string its_name)
        : device(its_device),
          owner(its_owner),
          bytes(its_bytes),
          recomputed(is_recomputed),
          name(std::move(its_name)) {}
    virtual ~Item() = default;
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;

    const Device device;        // where it lives
    MemoryOwner& owner;         // that its memory is charged to
    const int64_t bytes;        // that it takes while it is here
    const bool recomputed;      // made again instead of read from the file
    const std::string name;     // in reports
    SpillState<StdSync> state;  // where it is and who is at it

   private:
    friend class Spillables;
    // By who moves it: its memory goes. `coming`: it was being read. Returns how many bytes were written. Throws; it stays then.
    virtual int64_t LetGo(bool coming) = 0;
    // By who moves it: here again, in memory of the owner.
    virtual void Bring(bool coming) = 0;
    virtual void BeginToBring() = 0;
    // By who moves it, where it is here. Why its memory would not go: "lent"; null: it would.
    virtual const char* WhyItStays() const = 0;

    std::atomic<const char*> stays_{nullptr};  // as was found last
    std::atomic<const MemoryOwner*> pinned_by_{nullptr};
    // Under the lock of all:
    bool listed_ = false;
    std::list<std::weak_ptr<Item>>::iterator place_;
  };

  explicit Spillables(SpillFile& file, std::string name = "spillables");
  ~Spillables();
  Spillables(const Spillables&) = delete;
  Spillables& operator=(const Spillables&) = delete;

  // As constructed, and what there is of it; from any thread.
  SpillFile& file() const { return file_; }
  SpillablesStats stats() const;

  // Lets go of the least recently used until so many bytes have gone, whatever the budgets are. Returns how many have.
  int64_t SpillNow(int64_t wanted);

  // ---- for items ----
  void Add(const std::shared_ptr<Item>& item);
  void Remove(Item& item) noexcept;
  // Here from then on until Unpin(). Throws what bringing it throws: it is away still. kFailedPrecondition from a callback of the
  // runtime where it would have to wait.
  void Pin(Item& item);
  void Unpin(Item& item) noexcept;
  // It begins to come, if it is away.
  void Prefetch(Item& item);
  // This one; false where it is pinned, away or stays.
  bool SpillOne(Item& item);

 private:
  int64_t Spill(int64_t wanted, const MemoryRequest& request) override;
  std::string DescribePinned() const override;

  std::vector<std::shared_ptr<Item>> Items() const;  // the least recently used first
  template <typename Serves>
  int64_t SpillWhere(int64_t wanted, const Serves& serves);
  bool LetGo(Item& item);

  bool IsChild() const;  // of a fork(), which has no thread of the file

  SpillFile& file_;
  const int64_t process_;
  mutable std::mutex mutex_;
  // Guarded by it:
  std::list<std::weak_ptr<Item>> items_;
  SpillablesStats stats_;                 // what is ever
  Reclaimer::Registration registration_;  // goes first
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_
