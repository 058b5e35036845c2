#include "tidepool/memory/ownership/owner_node.h"

#include <time.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_budgets.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {

thread_local constinit CurrentOwner current_owner;
constinit std::atomic<bool> owners_in_use{false};

namespace {

using internal::kSlabBits;
constexpr size_t kSlabNodes = size_t{1} << kSlabBits;

constinit SpinLock free_lock;
constinit OwnerNode* free_nodes = nullptr;  // free_lock
constinit std::mutex slab_mutex;
constinit uint64_t nodes_made = 0;  // indices 1 to this; slab_mutex

// Of which a fork takes the locks, in the order of their addresses; slab_mutex.
std::vector<OwnerNode*>& SlabsByAddress() {
  static auto& slabs = *new std::vector<OwnerNode*>;
  return slabs;
}
[[maybe_unused]] const std::vector<OwnerNode*>& slabs_at_start = SlabsByAddress();

template <typename Function>
void ForEachNode(const Function& function) {
  for (OwnerNode* const slab : SlabsByAddress()) {
    for (size_t i = 0; i < kSlabNodes; ++i) function(slab[i]);
  }
}

// A child finds every node whole and no lock taken, whatever other threads were attaching and closing.
void LockAllForFork() {
  slab_mutex.lock();
  ForEachNode([](OwnerNode& node) { node.lock.lock(); });
  internal::LoanMutex().lock();
  free_lock.lock();
}
void UnlockAllAfterFork() {
  free_lock.unlock();
  internal::LoanMutex().unlock();
  ForEachNode([](OwnerNode& node) { node.lock.unlock(); });
  slab_mutex.unlock();
}
[[maybe_unused]] const bool handles_forks = [] {
  static constinit const ForkHandlers handlers{&LockAllForFork, &UnlockAllAfterFork,
                                               &UnlockAllAfterFork};
  HandleFork(ForkLevel::kOwners, &handlers);
  return true;
}();

// A thread keeps some for itself, so that opening and closing a node in a loop shares nothing.
struct ThreadNodes {
  static constexpr int kMost = 8;
  OwnerNode* nodes = nullptr;
  int count = 0;
  ~ThreadNodes() {
    std::lock_guard<SpinLock> lock(free_lock);
    while (nodes != nullptr) {
      OwnerNode* node = nodes;
      nodes = node->next_free;
      node->next_free = free_nodes;
      free_nodes = node;
    }
    count = kMost;  // what comes later goes to the others
  }
};
thread_local ThreadNodes thread_nodes;

OwnerNode* TakeFree() noexcept {
  std::lock_guard<SpinLock> lock(free_lock);
  OwnerNode* node = free_nodes;
  if (node != nullptr) free_nodes = node->next_free;
  return node;
}

}  // namespace

namespace internal {

int64_t CoarseNow() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

constinit std::atomic<OwnerNode*> slabs[size_t{1} << (kOwnerIndexBits - kSlabBits)] = {};

OwnerNode* NewNode() {
  ThreadNodes& mine = thread_nodes;
  if (mine.nodes != nullptr) {
    OwnerNode* node = mine.nodes;
    mine.nodes = node->next_free;
    --mine.count;
    return node;
  }
  if (OwnerNode* node = TakeFree()) return node;
  std::lock_guard<std::mutex> one_at_a_time(slab_mutex);
  if (OwnerNode* node = TakeFree()) return node;
  if (nodes_made + kSlabNodes > kOwnerIndexMask) {
    ThrowResourceExhausted(
        absl::StrCat("owners: ", nodes_made, " are open at once, which is all there can be"));
  }
  std::vector<OwnerNode*>& by_address = SlabsByAddress();
  by_address.reserve(by_address.size() + 1);
  auto slab = std::make_unique<OwnerNode[]>(kSlabNodes);
  const uint64_t first = nodes_made + 1;
  for (size_t i = 0; i < kSlabNodes; ++i) {
    slab[i].ref.store((uint64_t{1} << kOwnerIndexBits) | (first + i), std::memory_order_relaxed);
    slab[i].next_free = i + 1 < kSlabNodes ? &slab[i + 1] : nullptr;
  }
  OwnerNode* node = slab.get();
  by_address.insert(
      std::upper_bound(by_address.begin(), by_address.end(), node, std::less<OwnerNode*>()), node);
  nodes_made += kSlabNodes;
  internal::slabs[(first - 1) >> kSlabBits].store(slab.release(), std::memory_order_release);
  std::lock_guard<SpinLock> lock(free_lock);
  node[kSlabNodes - 1].next_free = free_nodes;
  free_nodes = node->next_free;
  return node;
}

namespace {

// Nothing is in it, and nothing refers to it: what its next use begins with; where it is, and as what, is
// said then. Whoever closed it has seen to that; were it not so, the next one would close what is none
// of its own.
void Empty(OwnerNode& node) noexcept {
  assert(node.is_empty() && node.newest_child == nullptr && node.newest_resource == nullptr);
  assert(node.arrays.get() == 0 && node.bytes.get() == 0 && node.resources == 0);
  assert(node.newest_loan.load(std::memory_order_relaxed) == nullptr && node.arriving == 0);
  assert(!node.cycle_scope.is_held());
  node.newest.set(nullptr);
  node.newest_in_cycle.set(nullptr);
  node.newest_child = nullptr;
  node.newest_resource = nullptr;
  node.arrays.set(0);
  node.bytes.set(0);
  node.peak_bytes.set(0);
  node.resources = 0;
  node.arriving = 0;
  node.is_root = false;
  node.abandoned = false;
  node.newer = nullptr;
  node.budget.reset();
  node.caps.store(0, std::memory_order_relaxed);
  node.closer.store(nullptr, std::memory_order_relaxed);
}

}  // namespace

void RecycleNode(OwnerNode* node) noexcept {
  node->state.store(NodeState::kFree, std::memory_order_relaxed);
  Empty(*node);
  ThreadNodes& mine = thread_nodes;
  if (mine.count < ThreadNodes::kMost) {
    node->next_free = mine.nodes;
    mine.nodes = node;
    ++mine.count;
    return;
  }
  std::lock_guard<SpinLock> lock(free_lock);
  node->next_free = free_nodes;
  free_nodes = node;
}

void Lock(OwnerNode* a, OwnerNode* b) noexcept {
  if (a == b) b = nullptr;
  if (std::less<OwnerNode*>()(b, a)) std::swap(a, b);
  if (a != nullptr) a->lock.lock();
  if (b != nullptr) b->lock.lock();
}

void Unlock(OwnerNode* a, OwnerNode* b) noexcept {
  if (a != nullptr) a->lock.unlock();
  if (b != nullptr && b != a) b->lock.unlock();
}

}  // namespace internal

bool LinkNew(Buffer* buffer, uint64_t ref) noexcept {
  OwnerNode* node = NodeOf(ref);
  std::lock_guard<SpinLock> lock(node->lock);
  if (node->ref.load(std::memory_order_relaxed) != ref || !node->is_open() ||
      node->caps.load(std::memory_order_relaxed) != 0 ||
      !internal::Arrive(nullptr, *node, 1, static_cast<int64_t>(buffer->bytes))) {
    return false;
  }
  node->LinkNew(buffer, node->HasInCycle(*buffer));
  return true;
}

std::string DescribeNode(uint64_t ref) {
  std::string path, called;  // `called`: what the next one was when its child was made
  while (OwnerNode* node = NodeOf(ref)) {
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != ref) {
      path = absl::StrCat(called.empty() ? "(closed)" : called, path.empty() ? "" : "/", path);
      break;
    }
    if (node->is_root && !path.empty()) break;
    path = absl::StrCat(node->name, path.empty() ? "" : "/", path);
    called = node->parent_name;
    ref = node->parent_ref;
  }
  return absl::StrCat("owner [", path, "]");
}

void CheckMayOwn(uint64_t ref, size_t bytes, const std::string& what) {
  OwnerNode* node = NodeOf(ref);
  std::string full;
  do {
    std::lock_guard<SpinLock> lock(node->lock);
    if (node->ref.load(std::memory_order_relaxed) != ref || !node->is_open()) {
      full = " is closed";
    } else if (node->caps.load(std::memory_order_relaxed) > 0) {
      full =
          " is capped: what would stay in it is a leak; make it in a sub-manager, enter one with "
          "ManagerScope, or give an explicit destination";
    } else if (internal::Arrive(nullptr, *node, 1, static_cast<int64_t>(bytes))) {
      internal::CancelArrival(nullptr, *node, 1, static_cast<int64_t>(bytes));
      return;
    }
  } while (full.empty() && internal::MakeRoom(ref, 1, static_cast<int64_t>(bytes)));
  if (!full.empty()) ThrowFailedPrecondition(absl::StrCat(what, ": ", DescribeNode(ref), full));
  internal::ThrowBeyondBudget(ref, 1, static_cast<int64_t>(bytes), what);
}

}  // namespace tidepool
