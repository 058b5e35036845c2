// Who memory is held for: a tree of named nodes below the process.
//
//   MemoryOwnerScope owner("loader");          // heap arrays made on this thread from here on ...
//   MemoryTagScope tag("imported");            // ... are the loader's, tagged "imported"
//
// An owner is a component (a network, a workspace, a thread's work); a tag says what for within it.
// Every node of one name under one parent is the same node. Memory remembers the node it was charged
// to and is taken off the same one, whatever is current then.
//
// Nodes that somebody asked for by name are never freed: names are for components, not for steps. Those
// of workspaces and pools are there for as long as these (owner_lease.h). Beyond kMaxMemoryOwners all new
// names below a node share one, "(others)", which can have no limit (is_shared). Threads: any; the current
// owner is a thread's own. Cost: a scope by name is a lock and a lookup, a scope by node two stores.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_OWNER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_OWNER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/device.h"

namespace tidepool {

struct BudgetLine;

inline constexpr uint32_t kMaxMemoryOwners = 1 << 16;  // nodes of the process, tags among them

class MemoryOwner {
 public:
  // The root. What nobody claims is its own.
  static MemoryOwner& Process();
  // The innermost scope's on this thread; Process() without one.
  static MemoryOwner& Current();

  // Every node there is, parents before children. Those of workspaces that end meanwhile are there as
  // long as a MemoryOwnersHold from before.
  static std::vector<MemoryOwner*> All();

  // The node of that name below this one; an owner below a tag leaves the tag.
  MemoryOwner& Child(const std::string& name);
  MemoryOwner& Tagged(const std::string& tag);

  // The name or tag that it was made by; the node above it; which of both it is.
  const std::string& name() const { return name_; }
  MemoryOwner* parent() const { return parent_; }  // null: the process
  bool is_tag() const { return is_tag_; }

  // What many names have in common, beyond kMaxMemoryOwners; all below it are the same node.
  bool is_shared() const { return is_shared_; }
  // How many nodes that are gone it stands for (owner_lease.h); 0: none.
  int64_t merged() const { return merged_.load(std::memory_order_relaxed); }
  uint32_t index() const { return index_; }    // dense, from 0: the process
  uint64_t number() const { return number_; }  // no other node's, ever
  std::string Path() const;  // owners from the root, "network/workspace training"; "process"
  std::string Tag() const;   // "layer conv2"; nested ones joined by "/"; empty without

  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;

 private:
  friend class MemoryBudget;
  friend class MemoryOwnersHold;
  friend class OwnerLease;
  MemoryOwner(MemoryOwner* parent, std::string name, bool is_tag, uint32_t index,
              bool is_shared = false)
      : parent_(parent),
        name_(std::move(name)),
        is_tag_(is_tag),
        is_shared_(is_shared),
        index_(index),
        number_(NextNumber()) {}
  static uint64_t NextNumber() noexcept;
  // One lock for the whole tree: nodes are made seldom.
  static std::mutex& TreeMutex();
  MemoryOwner& FindOrMake(const std::string& name, bool is_tag);
  // What a node is asked for: to stay, as long as a lease, or as the sum of those beside it that are gone.
  enum class Claim : uint8_t { kStay, kLease, kSum };
  // Under it, as all that follow.
  MemoryOwner& FindOrMakeLocked(const std::string& name, bool is_tag, Claim claim);
  void Take(Claim claim) noexcept;
  // It and all above it stay.
  void Stay() noexcept;
  // One lease less, of a node or of one below it; true: it is gone now.
  bool EndLease() noexcept;
  // Takes and leaves the place of a node without leases.
  void BecomeGone() noexcept;
  void ComeBack() noexcept;
  // Of one that is gone, or of the sum below such a one. What it counted must have been added to another.
  static void Free(MemoryOwner& gone) noexcept;
  // The sum of what is gone below it, which is all that there is below a node that is gone itself; null: there is none.
  MemoryOwner* SumBelow() const noexcept;

  MemoryOwner* const parent_;
  const std::string name_;
  const bool is_tag_;
  const bool is_shared_;
  const uint32_t index_;
  const uint64_t number_;
  std::map<std::pair<bool, std::string>, std::unique_ptr<MemoryOwner>> children_;
  std::unique_ptr<MemoryOwner> others_[2];  // by is_tag
  // Of nodes that are leased:
  bool stays_ = true;    // it was asked for by name, too
  bool is_sum_ = false;  // and nobody asked for it but those that are gone
  bool is_gone_ = false;
  uint32_t leases_ = 0;  // of it, and one of each leased node below it
  MemoryOwner* next_gone_ = nullptr;
  MemoryOwner* previous_gone_ = nullptr;
  std::atomic<int64_t> merged_{0};
  // The budget's: the host's, and of the devices of each type. There for as long as the node.
  struct Lines {
    std::atomic<BudgetLine*> of_device[kMaxDevicesPerType] = {};
  };
  std::atomic<BudgetLine*> host_line_{nullptr};
  std::atomic<Lines*> lines_[kMaxDeviceTypes] = {};

  // The ones that are gone, the first first.
  static constinit inline MemoryOwner* first_gone_ = nullptr;
  static constinit inline MemoryOwner* last_gone_ = nullptr;
  static constinit inline int64_t gone_ = 0;
  static constinit inline int64_t holds_ = 0;
};

namespace internal {
extern thread_local constinit MemoryOwner* current_memory_owner;  // null: the process
}  // namespace internal

inline MemoryOwner& MemoryOwner::Current() {
  MemoryOwner* owner = internal::current_memory_owner;
  return owner != nullptr ? *owner : Process();
}

// Ends in the reverse order of its beginning, on its own thread.
class [[nodiscard]] MemoryOwnerScope {
 public:
  explicit MemoryOwnerScope(const std::string& name)
      : MemoryOwnerScope(MemoryOwner::Current().Child(name)) {}
  explicit MemoryOwnerScope(MemoryOwner& owner)
      : previous_(std::exchange(internal::current_memory_owner, &owner)) {}
  ~MemoryOwnerScope() { internal::current_memory_owner = previous_; }
  MemoryOwnerScope(const MemoryOwnerScope&) = delete;
  MemoryOwnerScope& operator=(const MemoryOwnerScope&) = delete;

 private:
  MemoryOwner* previous_;
};

// The same of a tag: below the current owner, or the current tag.
class [[nodiscard]] MemoryTagScope {
 public:
  explicit MemoryTagScope(const std::string& tag) : scope_(MemoryOwner::Current().Tagged(tag)) {}

 private:
  MemoryOwnerScope scope_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_OWNER_H_
