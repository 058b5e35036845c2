#include "tidepool/memory/accounting/memory_owner.h"

#include <mutex>

#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {

namespace internal {
thread_local constinit MemoryOwner* current_memory_owner = nullptr;
}  // namespace internal

namespace {

// One lock for the whole tree: nodes are made seldom.
std::mutex& TreeMutex() {
  static std::mutex* const mutex = [] {
    static constinit const ForkHandlers handlers{
        [] { TreeMutex().lock(); }, [] { TreeMutex().unlock(); }, [] { TreeMutex().unlock(); }};
    HandleFork(ForkLevel::kOwnerTree, &handlers);
    return new std::mutex;
  }();
  return *mutex;
}
// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const std::mutex& at_start = TreeMutex();
uint32_t owners = 1;  // guarded by TreeMutex(); the process is there

}  // namespace

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
  const auto found = children_.find({is_tag, name});
  if (found != children_.end()) return *found->second;
  if (is_shared_) return *this;
  if (owners >= kMaxMemoryOwners) {
    std::unique_ptr<MemoryOwner>& others = others_[is_tag];
    if (others == nullptr) {
      others.reset(new MemoryOwner(this, "(others)", is_tag, owners, /*is_shared=*/true));
      ++owners;
    }
    return *others;
  }
  std::unique_ptr<MemoryOwner> made(new MemoryOwner(this, name, is_tag, owners));
  MemoryOwner& node = *children_.emplace(std::pair(is_tag, name), std::move(made)).first->second;
  ++owners;
  return node;
}

MemoryOwner& MemoryOwner::Child(const std::string& name) {
  MemoryOwner* owner = this;
  while (owner->is_tag_) owner = owner->parent_;
  return owner->FindOrMake(name, false);
}

MemoryOwner& MemoryOwner::Tagged(const std::string& tag) { return FindOrMake(tag, true); }

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
