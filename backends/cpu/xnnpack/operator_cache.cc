#include "tidepool/backends/cpu/xnnpack/operator_cache.h"

#include <time.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/ndarray/kernel/kept_operands.h"

namespace tidepool::cpu {
namespace {

int64_t SystemSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec;
}

std::string_view BytesOf(const XnnpackOperators::Key& key) {
  // All members are 8 bytes wide, so there is no padding.
  return {reinterpret_cast<const char*>(&key), sizeof(key)};
}

}  // namespace

size_t XnnpackOperators::Hash::operator()(const Key& key) const {
  return std::hash<std::string_view>()(BytesOf(key));
}
bool XnnpackOperators::Same::operator()(const Key& a, const Key& b) const {
  return BytesOf(a) == BytesOf(b);
}

// All but `versions` is guarded by the cache's mutex.
struct XnnpackOperators::Entry {
  explicit Entry(const Versions& of) : versions(of) {}
  ~Entry() { DropIdle(); }
  void DropIdle() {
    for (xnn_operator_t op : idle) xnn_delete_operator(op);
    idle.clear();
  }

  Versions versions;
  std::vector<xnn_operator_t> idle;  // with room for those that run
  int running = 0;
  bool is_dropped = false;  // nobody finds it any more
  bool answer = false;
  int64_t last_use = 0;
};

// A free operator, or a new one, for one call.
class XnnpackOperators::Lease {
 public:
  Lease(XnnpackOperators& cache, const Key& key, const Versions& versions) : cache_(cache) {
    std::lock_guard lock(cache_.mutex_);
    entry_ = cache_.FindLocked(key, versions);
    // Giving back takes no memory.
    entry_->idle.reserve(entry_->idle.size() + static_cast<size_t>(entry_->running) + 1);
    ++entry_->running;
    if (entry_->idle.empty()) return;
    op = entry_->idle.back();
    entry_->idle.pop_back();
  }
  ~Lease() {
    std::lock_guard lock(cache_.mutex_);
    --entry_->running;
    if (op == nullptr) return;
    if (entry_->is_dropped) {
      xnn_delete_operator(op);
    } else {
      entry_->idle.push_back(op);
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  xnn_operator_t op = nullptr;

 private:
  XnnpackOperators& cache_;
  std::shared_ptr<Entry> entry_;
};

XnnpackOperators& XnnpackOperators::Global() {
  static XnnpackOperators* const operators = [] {
    auto* made = new XnnpackOperators;
    static const Reclaimer::Registration registration = Reclaimer::Global().Register(
        "xnnpack", [made](ReclaimDepth depth) { return made->Reclaim(depth); });
    static const OperandKeeper keeper([](uint64_t id) noexcept { Global().Forget(id); });
    return made;
  }();
  return *operators;
}
// Before there are threads: what one was about to make at a fork() would never be made in the child.
[[maybe_unused]] const XnnpackOperators& at_start = XnnpackOperators::Global();

int64_t XnnpackOperators::NowLocked() const {
  return clock_ != nullptr ? clock_() : SystemSeconds();
}

std::shared_ptr<XnnpackOperators::Entry> XnnpackOperators::FindLocked(const Key& key,
                                                                      const Versions& versions) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    found = entries_.emplace(key, std::make_shared<Entry>(versions)).first;
  } else if (found->second->versions != versions && found->second->running == 0) {
    // Behind a step of training each layer's weights are new: what held the old ones holds them, and nothing is allocated.
    found->second->DropIdle();
    found->second->versions = versions;
  } else if (found->second->versions != versions) {
    auto made = std::make_shared<Entry>(versions);
    // Old weights go before the new are packed, so that both are not held.
    found->second->is_dropped = true;
    found->second->DropIdle();
    found->second = std::move(made);
  }
  found->second->last_use = NowLocked();
  return found->second;
}

template <typename Is>
void XnnpackOperators::DropLocked(const Is& is) {
  std::erase_if(entries_, [&](const auto& each) {
    return each.second->running == 0 && is(each.first, *each.second);
  });
}

// Once a second: of thousands of layers that are all in use each would look at all.
void XnnpackOperators::DropOldLocked() {
  const int64_t now = NowLocked();
  if (now == looked_at_) return;
  looked_at_ = now;
  DropLocked([&](const Key&, const Entry& entry) { return entry.last_use + kKeptSeconds < now; });
}

void XnnpackOperators::With(const Key& key, const Versions& versions, const char* what,
                            absl::FunctionRef<xnn_status(xnn_operator_t*)> create,
                            absl::FunctionRef<xnn_status(xnn_operator_t)> use) {
  Lease lease(*this, key, versions);
  if (lease.op == nullptr) {
    {
      std::lock_guard lock(mutex_);
      DropOldLocked();
    }
    const TakingXnnpackMemory taking;
    CheckXnnpack(create(&lease.op), what);
  }
  CheckXnnpack(use(lease.op), what);
}

bool XnnpackOperators::Remember(const Weights& weights, const Versions& versions, int64_t elements,
                                absl::FunctionRef<bool()> find) {
  Key key;
  key.weights = weights;
  key.sizes[0] = elements;
  {
    std::lock_guard lock(mutex_);
    const auto known = entries_.find(key);
    if (known != entries_.end() && known->second->versions == versions) {
      known->second->last_use = NowLocked();
      return known->second->answer;
    }
  }
  const bool answer = find();
  std::lock_guard lock(mutex_);
  DropOldLocked();
  return FindLocked(key, versions)->answer = answer;
}

int64_t XnnpackOperators::Reclaim(ReclaimDepth depth) {
  if (IsTakingXnnpackMemory()) return 0;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  return ReclaimXnnpackMemory([&] {
    if (depth == ReclaimDepth::kIdle)
      DropLocked([](const Key& key, const Entry&) { return key.kind != 0; });
  });
}

void XnnpackOperators::Forget(uint64_t buffer_id) noexcept {
  std::lock_guard lock(mutex_);
  std::erase_if(entries_, [buffer_id](const auto& each) {
    const Weights& weights = each.first.weights;
    if (weights.filter_id != buffer_id && weights.bias_id != buffer_id) return false;
    each.second->is_dropped = true;
    return true;
  });
}

void XnnpackOperators::Clear() {
  {
    std::lock_guard lock(mutex_);
    DropLocked([](const Key&, const Entry&) { return true; });
  }
  ReclaimXnnpackMemory([] {});
}

size_t XnnpackOperators::size() const {
  std::lock_guard lock(mutex_);
  size_t size = 0;
  for (const auto& [key, entry] : entries_)
    size += entry->idle.size() + static_cast<size_t>(entry->running);
  return size;
}

size_t XnnpackOperators::answers() const {
  std::lock_guard lock(mutex_);
  size_t answers = 0;
  for (const auto& [key, entry] : entries_) answers += key.kind == 0;
  return answers;
}

void XnnpackOperators::SetClockForTesting(int64_t (*clock)()) {
  std::lock_guard lock(mutex_);
  clock_ = clock;
}

}  // namespace tidepool::cpu
