// Random changes against a model that keeps every charge in a list and adds them up anew each time.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"

namespace tidepool {
namespace {

struct Charge {
  MemoryOwner* owner;
  MemoryKind kind;
  int64_t bytes;
};

struct Totals {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t total = 0;
  int64_t in_use = 0;
};

bool IsAbove(const MemoryOwner* above, const MemoryOwner* node) {
  for (; node != nullptr; node = node->parent()) {
    if (node == above) return true;
  }
  return false;
}

class Model {
 public:
  std::vector<Charge> charges;
  MemoryOwner* account_owner = nullptr;
  int64_t owned = 0, used = 0;

  Totals Of(const MemoryOwner* owner) const {
    Totals totals;
    for (const Charge& charge : charges) {
      if (!IsAbove(owner, charge.owner)) continue;
      totals.kinds[static_cast<int>(charge.kind)] += charge.bytes;
      totals.total += charge.bytes;
    }
    if (IsAbove(owner, account_owner)) {
      totals.kinds[static_cast<int>(MemoryKind::kAllocated)] += used;
      totals.kinds[static_cast<int>(MemoryKind::kUnreferenced)] += owned - used;
      totals.total += owned;
    }
    totals.in_use = totals.total - totals.kinds[static_cast<int>(MemoryKind::kUnreferenced)];
    return totals;
  }
};

void Raise(Totals& peak, const Totals& now) {
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    peak.kinds[kind] = std::max(peak.kinds[kind], now.kinds[kind]);
  }
  peak.total = std::max(peak.total, now.total);
  peak.in_use = std::max(peak.in_use, now.in_use);
}

struct Watched {
  std::unique_ptr<PeakScope> scope;
  MemoryOwner* owner;
  Totals peak;
};

TEST(MemoryTrackerModel, RandomChangesAgree) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  MemoryOwner& a = MemoryOwner::Process().Child("a");
  MemoryOwner& b = MemoryOwner::Process().Child("b");
  const std::vector<MemoryOwner*> owners = {
      &MemoryOwner::Process(), &a, &b, &a.Child("a1"), &a.Tagged("t"), &a.Child("a1").Tagged("t")};
  for (int round = 0; round < 30; ++round) {
    MemoryTracker tracker;
    Model model;
    model.account_owner = owners[below(6)];
    MemoryAccount account(Host(), model.account_owner);
    tracker.Register(&account);
    model.owned = 1 << 20;
    tracker.AddOwned(&account, model.owned);
    std::vector<Watched> scopes;
    std::map<MemoryOwner*, Totals> peaks;
    auto raise = [&] {
      for (MemoryOwner* owner : owners) Raise(peaks[owner], model.Of(owner));
      for (Watched& watched : scopes) Raise(watched.peak, model.Of(watched.owner));
    };
    for (int step = 0; step < 400; ++step) {
      const int what = below(10);
      if (what < 3) {
        model.charges.push_back(
            {owners[below(6)], static_cast<MemoryKind>(below(kMemoryKinds)), 1 + below(5000)});
        const Charge& charge = model.charges.back();
        tracker.Add(Host(), charge.kind, charge.bytes, charge.owner);
      } else if (what < 5 && !model.charges.empty()) {
        const int which = below(static_cast<int>(model.charges.size()));
        const Charge charge = model.charges[which];
        model.charges.erase(model.charges.begin() + which);
        tracker.Add(Host(), charge.kind, -charge.bytes, charge.owner);
      } else if (what < 7) {
        const int64_t bytes = 1 + below(3000);
        account.AddUsed(bytes);
        model.used += bytes;
      } else if (what == 7 && model.used > 0) {
        const int64_t bytes = 1 + below(static_cast<int>(model.used));
        account.SubUsed(bytes);
        model.used -= bytes;
        if (below(2) == 0) tracker.Fold(&account);
      } else if (what == 8) {
        MemoryOwner* owner = owners[below(6)];
        scopes.push_back({std::make_unique<PeakScope>(Host(), owner, tracker), owner, {}});
      } else if (!scopes.empty()) {
        scopes.erase(scopes.begin() + below(static_cast<int>(scopes.size())));
      }
      raise();
      if (below(4) != 0) continue;
      const MemorySnapshot snapshot = tracker.Snapshot();
      for (MemoryOwner* owner : owners) {
        const Totals now = model.Of(owner);
        if (peaks[owner].total == 0 && owner->parent() != nullptr) continue;
        const OwnerMemory memory = snapshot.Of(owner->Path(), owner->Tag());
        ASSERT_EQ(memory.total.current_bytes, now.total);
        ASSERT_EQ(memory.total.peak_bytes, peaks[owner].total);
        for (int kind = 0; kind < kMemoryKinds; ++kind) {
          ASSERT_EQ(memory.kinds[kind].current_bytes, now.kinds[kind]) << owner->Path();
          // What a workspace leaves unused is known at folds only; the other kinds are exact.
          if (kind == static_cast<int>(MemoryKind::kUnreferenced)) continue;
          ASSERT_EQ(memory.kinds[kind].peak_bytes, peaks[owner].kinds[kind]) << owner->Path();
        }
      }
      for (Watched& watched : scopes) {
        const PeakScope::Bytes peak = watched.scope->peak();
        ASSERT_EQ(peak.total, watched.peak.total);
        ASSERT_EQ(peak.in_use, watched.peak.in_use);
      }
    }
    account.SubUsed(model.used);
    scopes.clear();
    tracker.Unregister(&account);
  }
}

}  // namespace
}  // namespace tidepool
