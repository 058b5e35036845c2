#include "tidepool/memory/accounting/memory_owner.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {

namespace internal {
thread_local constinit MemoryOwner* current_memory_owner = nullptr;
}  // namespace internal

namespace {

// Guarded by the tree's mutex:
uint32_t owners = 1;  // the process is there
uint32_t indices = 1;
// Of nodes that were freed. Never destroyed, with room for all.
std::vector<uint32_t>& FreeIndices() {
  static auto& free_indices = *new std::vector<uint32_t>;
  return free_indices;
}

uint32_t TakeIndex() {
  std::vector<uint32_t>& free_indices = FreeIndices();
  if (!free_indices.empty()) {
    const uint32_t index = free_indices.back();
    free_indices.pop_back();
    return index;
  }
  if (free_indices.capacity() <= indices) free_indices.reserve(2 * size_t{indices} + 64);
  return indices++;
}

}  // namespace

uint64_t MemoryOwner::NextNumber() noexcept {
  static constinit std::atomic<uint64_t> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::mutex& MemoryOwner::TreeMutex() {
  static std::mutex* const mutex = [] {
    static constinit const ForkHandlers handlers{
        [] { TreeMutex().lock(); }, [] { TreeMutex().unlock(); }, [] { TreeMutex().unlock(); }};
    HandleFork(ForkLevel::kOwnerTree, &handlers);
    return new std::mutex;
  }();
  return *mutex;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] static const size_t owners_at_start = MemoryOwner::All().size();

MemoryOwner& MemoryOwner::Process() {
  static MemoryOwner* const process = new MemoryOwner(nullptr, "process", false, 0);
  return *process;
}

std::vector<MemoryOwner*> MemoryOwner::All() {
  std::lock_guard<std::mutex> lock(TreeMutex());
  std::vector<MemoryOwner*> all = {&Process()};
  for (size_t i = 0; i < all.size(); ++i) {
    MemoryOwner& owner = *all[i];
    for (const auto& [name, child] : owner.children_) all.push_back(child.get());
    for (const auto& others : owner.others_) {
      if (others != nullptr) all.push_back(others.get());
    }
  }
  return all;
}

MemoryOwner& MemoryOwner::FindOrMake(const std::string& name, bool is_tag) {
  std::lock_guard<std::mutex> lock(TreeMutex());
  return FindOrMakeLocked(name, is_tag, Claim::kStay);
}

void MemoryOwner::Stay() noexcept {
  for (MemoryOwner* node = this; node != nullptr; node = node->parent_) {
    if (node->is_gone_) node->ComeBack();
    if (node->stays_ && !node->is_sum_) return;  // and so do those above it
    node->stays_ = true;
    node->is_sum_ = false;
  }
}

void MemoryOwner::Take(Claim claim) noexcept {
  if (is_gone_) ComeBack();
  if (claim == Claim::kLease) ++leases_;
  if (claim == Claim::kStay) Stay();
}

MemoryOwner& MemoryOwner::FindOrMakeLocked(const std::string& name, bool is_tag, Claim claim) {
  const auto found = children_.find({is_tag, name});
  if (found != children_.end()) {
    found->second->Take(claim);
    return *found->second;
  }
  if (is_shared_) {
    if (claim == Claim::kLease) parent_->Take(claim);
    return *this;
  }
  // A sum takes the place of one that is gone.
  if (owners >= kMaxMemoryOwners && claim != Claim::kSum) {
    std::unique_ptr<MemoryOwner>& others = others_[is_tag];
    if (others == nullptr) {
      others.reset(new MemoryOwner(this, "(others)", is_tag, TakeIndex(), /*is_shared=*/true));
      ++owners;
    }
    // A lease of it is one of the node above, with which it goes.
    Take(claim == Claim::kLease ? claim : Claim::kStay);
    return *others;
  }
  std::unique_ptr<MemoryOwner> made(new MemoryOwner(this, name, is_tag, TakeIndex()));
  MemoryOwner& node = *made;
  try {
    children_.emplace(std::pair(is_tag, name), std::move(made));
  } catch (...) {
    FreeIndices().push_back(node.index());
    throw;
  }
  ++owners;
  node.is_sum_ = claim == Claim::kSum;
  node.stays_ = node.is_sum_;
  node.Take(claim);
  if (node.is_sum_) return node;
  if (is_sum_) Stay();  // it cannot go any more with the node above it
  if (!stays_) Take(Claim::kLease);
  return node;
}

MemoryOwner& MemoryOwner::Child(const std::string& name) {
  MemoryOwner* owner = this;
  while (owner->is_tag_) owner = owner->parent_;
  return owner->FindOrMake(name, false);
}

MemoryOwner& MemoryOwner::Tagged(const std::string& tag) { return FindOrMake(tag, true); }

// ---- nodes that go ---------------------------------------------------------------------------

bool MemoryOwner::EndLease() noexcept {
  if (--leases_ > 0 || stays_) return false;
  BecomeGone();
  return true;
}

MemoryOwner* MemoryOwner::SumBelow() const noexcept {
  return children_.empty() ? nullptr : children_.begin()->second.get();
}

void MemoryOwner::BecomeGone() noexcept {
  is_gone_ = true;
  next_gone_ = nullptr;
  previous_gone_ = last_gone_;
  (last_gone_ != nullptr ? last_gone_->next_gone_ : first_gone_) = this;
  last_gone_ = this;
  ++gone_;
}

void MemoryOwner::ComeBack() noexcept {
  is_gone_ = false;
  (previous_gone_ != nullptr ? previous_gone_->next_gone_ : first_gone_) = next_gone_;
  (next_gone_ != nullptr ? next_gone_->previous_gone_ : last_gone_) = previous_gone_;
  --gone_;
}

void MemoryOwner::Free(MemoryOwner& gone) noexcept {
  if (gone.is_shared_) {
    FreeIndices().push_back(gone.index_);
    --owners;
    gone.parent_->others_[gone.is_tag_].reset();
    return;
  }
  if (gone.is_gone_) {
    gone.ComeBack();
    if (!gone.parent_->stays_) gone.parent_->EndLease();
  }
  FreeIndices().push_back(gone.index_);  // there is room
  --owners;
  auto& siblings = gone.parent_->children_;
  auto at = siblings.end();
  try {
    at = siblings.find({gone.is_tag_, gone.name_});
  } catch (const std::bad_alloc&) {  // without memory for the key
    at = std::find_if(siblings.begin(), siblings.end(),
                      [&](const auto& each) { return each.second.get() == &gone; });
  }
  siblings.erase(at);
}

// ---- what it is like -------------------------------------------------------------------------

std::string MemoryOwner::Path() const {
  if (is_tag_) return parent_->Path();
  if (parent_ == nullptr || parent_->parent_ == nullptr) return name_;
  return parent_->Path() + "/" + name_;
}

std::string MemoryOwner::Tag() const {
  if (!is_tag_) return "";
  const std::string outer = parent_->Tag();
  return outer.empty() ? name_ : outer + "/" + name_;
}

}  // namespace tidepool
