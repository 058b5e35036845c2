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
// A program whose uses (pins, and what is made) come in the same order again and again says where one round of them ends:
//
//   for (int step = 0; step < steps; ++step) {
//     for (SpillableArray& table : tables) Use(*table.Read());
//     spillables.EndCycle();
//   }
//
// From two equal cycles on the plan is followed (use_cycle.h): what goes is what will be used again last, and no more of it than is missing.
// Those on the host are written before they have to go, and read before they are used, beside what the program does: of
// the next eight uses, where the budgets have room, or where what makes room is used later than what comes, one at a time. That is at the program's
// pins, on its thread, so nothing happens while there are none. A use that is not the expected one ends following it for the cycle. A plan may
// bring more than least recent use would, as what is read ahead takes the room of one, and sizes differ: where it did in all, the
// next cycles make no room for what is read ahead, then read nothing ahead, then go by least recent use.
//
// What goes from a device waits in tiers before the file, where there are some: page-locked memory of the host, or another device's.
//
//   Spillables spillables(file, {{.device = Host(), .bytes = int64_t{8} << 30}});
//
// It goes to the first one that has room, in its bytes and in the budgets of its device, which may make some: what waits there and is used
// last goes on, to the next tier or to the file, and where the newcomer is used later than all of it, the newcomer goes past. Other
// things of the tier's device stay for it. A request that only fewer bytes in all would serve (the process's limit) passes the tiers by. What comes back has left its tier.
//
// Ownership: the file outlives it, and it its items. Threads: any. A budget's request, on whichever thread, waits for what it has
// written. Callbacks of memory_events.h and of the Reclaimer are in the middle of one: a pin that would have to wait is refused to
// them. Cost: a request that has to spill goes through all items; a use of one is a lock, and a few more, with a look at the next eight uses,
// where cycles are told. What those take: use_cycle.h. fork(): a child
// may read, write and destroy the arrays that are here, and its budgets do without them; those that are away, and new ones, are
// kFailedPrecondition there, and nothing is let go of or counted.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_
#define TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/spill/plan_counters.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spill_state.h"
#include "tidepool/memory/spill/tier_counters.h"
#include "tidepool/memory/spill/use_cycle.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool {

// Where things of devices wait before they go to the file.
struct SpillTier {
  Device device = Host();                               // of which the memory is
  int64_t bytes = std::numeric_limits<int64_t>::max();  // that may wait there at a time
};

// Of one tier.
struct SpillTierStats : SpillTierCounters {
  Device device = Host();                   // of which the memory is
  int64_t limit_bytes = 0, here_bytes = 0;  // as given; now
};

// What there is now, and what was done so far.
struct SpillablesStats {
  int64_t items = 0;                       // registered
  int64_t here_bytes = 0, away_bytes = 0;  // of them: where they live, in tiers or the file
  int64_t pinned_bytes = 0;                // of those here
  int64_t elsewhere_bytes = 0;             // likewise: their bytes are with somebody else as well
  int64_t recomputed_bytes = 0;            // of all: what is computed again, and never written
  // Ever:
  int64_t spills = 0, spilled_bytes = 0;    // let go of
  int64_t rewritten_bytes = 0;              // of these: written, as they had changed
  int64_t returns = 0, returned_bytes = 0;  // brought back
  int64_t stalls = 0;                       // uses that waited for it, or for its being computed
  int64_t failures = 0;                     // to let go
  SpillPlanCounters plan;                   // of cycles
  std::vector<SpillTierStats> tiers;        // in their order

  // A line for people, and one for each tier.
  std::string ToString() const;
};

class Spillables final : private Spiller {
 public:
  // One thing. Made and registered by what it is of; shared, so that it lives while it is moved.
  class Item : public internal::UsedThing {
   public:
    Item(Device its_device, MemoryOwner& its_owner, int64_t its_bytes, bool is_recomputed,
         std::string its_name)
        : UsedThing(its_bytes),
          device(its_device),
          owner(its_owner),
          owner_lease(its_owner),
          bytes(its_bytes),
          recomputed(is_recomputed),
          name(std::move(its_name)),
          home(its_device),
          root_(std::make_shared<Item*>(this)) {}
    // What waits in a tier for `of`.
    Item(Item& of, size_t its_tier, Device its_device)
        : UsedThing(of.bytes),
          device(its_device),
          owner(of.owner),
          owner_lease(of.owner),
          bytes(of.bytes),
          recomputed(false),
          name(of.name),
          home(of.home),
          tier(static_cast<int>(its_tier)),
          root_(of.root_) {}
    virtual ~Item() = default;
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;

    const Device device;           // where it is
    MemoryOwner& owner;            // that its memory is charged to
    const OwnerLease owner_lease;  // which stays, also while nothing is
    const int64_t bytes;           // that it takes while it is here
    const bool recomputed;         // made again instead of read from the file
    const std::string name;        // in reports
    const Device home;             // where whoever uses it has it
    const int tier = kNoTier;      // that it waits in; kNoTier: somebody uses it
    SpillState<StdSync> state;     // where it is and who is at it

    static constexpr int kNoTier = -1;  // no number of a tier

   private:
    friend class Spillables;
    // All by who moves it.
    // Its memory goes. `found`: as it was; what was being read is given up, what was being written is waited for. `to_file`: past
    // the tiers. Returns how many bytes were written to the file. Throws; it stays then.
    virtual int64_t LetGo(SpillState<StdSync>::Found found, bool to_file) = 0;
    // Here again, in memory of the owner.
    virtual void Bring(bool coming) = 0;
    virtual void BeginToBring() = 0;
    virtual bool HasCome() const = 0;  // Bring() will not wait, after that
    // Where it is here. Why its memory would not go: "lent"; null: it would.
    virtual const char* WhyItStays() const = 0;
    // It may go without being written.
    virtual bool IsWritten() const = 0;
    // Written from now on, until EndWrite(), which gives up what is not done, and returns whether it was, and well. Of those on the host.
    virtual void BeginToWrite() = 0;
    virtual bool HasWritten() const = 0;
    virtual bool EndWrite() noexcept = 0;

    std::atomic<const char*> stays_{nullptr};  // as was found last
    std::atomic<uint64_t> pinned_by_{0};       // MemoryOwner::number()
    // In a tier, while it is in it: by who moves it.
    internal::WaitingInTier waiting_;
    // Who is used: this, or of what waits in a tier for whom; null: gone. Under the lock of all.
    const std::shared_ptr<Item*> root_;
    // Under the lock of all:
    bool listed_ = false;
    bool is_ahead_ = false;  // read as the plan said, and not used yet
    bool in_vain_ = false;   // it was, and had to go: not again before its use
    bool is_away_ = false;   // and not coming
    std::list<std::weak_ptr<Item>>::iterator place_;
  };

  explicit Spillables(SpillFile& file, std::string name = "spillables");
  // `tiers`: the first one is tried first. kInvalidArgument for one of no bytes, and two of one device; kUnimplemented where no provider of a
  // device is linked.
  Spillables(SpillFile& file, std::vector<SpillTier> tiers, std::string name = "spillables");
  ~Spillables();
  Spillables(const Spillables&) = delete;
  Spillables& operator=(const Spillables&) = delete;

  // As constructed, and what there is of it; from any thread.
  SpillFile& file() const { return file_; }
  const std::vector<SpillTier>& tiers() const { return tiers_; }
  SpillablesStats stats() const;

  // Lets go of the least recently used, or of those that the plan uses last, until so many bytes have gone, whatever the budgets are. Returns
  // how many have.
  int64_t SpillNow(int64_t wanted);

  // A round of uses is over, and the next one begins, which is to come in the same order. The first call says that there are such rounds. Pins
  // may be held across it. From any thread; where several use things, their uses have an order only if something orders them.
  void EndCycle();
  // Whether a plan reads and writes ahead of use; initially so. Without that it decides what goes, and nothing else.
  void set_ahead(bool ahead);

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
  bool SpillOne(Item& item) { return LetGo(item, /*to_file=*/false); }
  // By who lets `item` go: whether that tier has room for it, which others may have been let go of for.
  bool MakeRoomInTier(const Item& item, size_t tier);
  // What begins to wait in a tier, where copying it took so long. Throws bad_alloc; and kFailedPrecondition in a child of fork().
  void EnterTier(const std::shared_ptr<Item>& copy, std::chrono::nanoseconds took);
  // What does not wait there any more: it was copied back, which took so long, or has gone on or away.
  void ReturnFromTier(Item& copy, std::chrono::nanoseconds took) noexcept;
  void LeaveTier(Item& copy) noexcept;
  // Whether it is in its tier, from then on, and may be read; else it has gone on, and nobody else moves it any more. kFailedPrecondition as Pin().
  bool PinInTier(Item& copy);

 private:
  using Found = SpillState<StdSync>::Found;
  // An item, and in how many uses its next one is.
  struct Candidate {
    int64_t next_use = 0;
    std::shared_ptr<Item> item;
  };
  enum class Room { kIs, kIsMade, kIsNot };
  // Of a request: whether it would be served by an item's going.
  class Serving;

  int64_t Spill(int64_t wanted, const MemoryRequest& request) override;
  std::string DescribePinned() const override;

  std::vector<std::shared_ptr<Item>> Items() const;  // the least recently used first
  using Serves = absl::FunctionRef<bool(const Item&)>;
  int64_t SpillWhere(int64_t wanted, Serves serves, bool to_file, int64_t used_after = -1);
  bool LetGo(Item& item, bool to_file);
  void NoteFailure() noexcept;  // the exception that is being handled; with the lock
  void NoteUse(Item& item, Found found, bool in_time);

  // ---- by the plan (spillables_plan.cc) ----
  void Note(const internal::UseCycle::Outcome& outcome);  // with the lock
  void JudgePlan();                                       // likewise
  void SetAway(Item& item, bool away);                    // likewise
  void NotAhead(Item& item);                              // likewise: it was used, or given up
  // Those that serve and may go, what is used last before the others; where nothing is known of that, the least recently used.
  std::vector<Candidate> Candidates(Serves serves, int64_t used_after, bool* by_plan) const;
  // The first of `left` that are `wanted` bytes or more together, without those that are not needed, which stay in it.
  static std::vector<Candidate> TakeLeast(std::vector<Candidate>* left, int64_t wanted);
  void GoAhead() noexcept;  // after each use, and after each pin
  bool BringNext();
  Room MakeRoom(const Item& item, int64_t use, bool is_next);
  bool IsReady(const std::shared_ptr<Item>& item, bool may_begin);

  // Of a fork(), which has no thread of the file.
  bool IsChild() const noexcept { return ForksBehind() != forks_; }
  void CheckNotChild(const Item& item) const;  // that is added

  // ---- tiers (spillables_tiers.cc) ----
  static std::vector<SpillTier> CheckedTiers(std::vector<SpillTier> tiers, const std::string& name);
  bool HasRoomInTier(const Item& item, size_t tier, int64_t* missing) const;
  void CountInTier(int tier, const SpillTierCounters& change) noexcept;  // with the lock

  SpillFile& file_;
  const std::vector<SpillTier> tiers_;
  const uint64_t forks_ = ForksBehind();
  std::atomic<bool> has_cycles_{false}, follows_{false};
  std::atomic<int64_t> away_{0};  // items
  mutable std::mutex mutex_;
  // Guarded by it:
  std::list<std::weak_ptr<Item>> items_;
  SpillablesStats stats_;                 // what is ever
  std::vector<SpillTierStats> in_tiers_;  // likewise
  std::string failure_;  // the last one to let go, since the last request that asked
  internal::UseCycle cycle_;
  bool ahead_ = true;
  bool is_going_ahead_ = false;  // some thread is
  bool ahead_fails_ = false;     // in this cycle
  bool followed_from_start_ = false;
  int coming_ = 0;  // items, as the plan said
  // One more whenever cycles by the plan brought more than least recent use: nothing makes room for what is read ahead; nothing is
  // read or written ahead; the plan is not followed, in the first cycle and later.
  static constexpr int kNoRoomMade = 1, kNothingAhead = 2, kLeastRecentUse = 3;
  int caution_ = 0;
  int64_t more_bytes_ = 0;                // that were brought since then
  int64_t brought_ = 0;                   // bytes, in this cycle
  int64_t least_recent_bytes_ = 0;        // in the last cycle that went by least recent use
  std::weak_ptr<Item> writing_;           // beside the program
  Reclaimer::Registration registration_;  // goes first
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILLABLES_H_
