// Limits: how they are set, and the error of who meets one.
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kHoldersNamed = 3;

std::string NameOf(const MemoryOwner& owner) {
  const std::string tag = owner.Tag();
  return tag.empty() ? owner.Path() : absl::StrCat(owner.Path(), " #", tag);
}

// "network 4096 (allocated 4000, unreferenced 96), ...": what the largest nodes hold themselves, `within` and below it, as
// only what goes there makes room; null: all.
std::string Holders(const MemorySnapshot& snapshot, Device device, const MemoryOwner* within) {
  const bool is_all = within == nullptr || within->parent() == nullptr;
  const std::string path = is_all ? "" : within->Path(), tag = is_all ? "" : within->Tag();
  const auto is_within = [](const std::string& path, const std::string& of) {
    return path == of || (path.size() > of.size() && path[of.size()] == '/' &&
                          path.compare(0, of.size(), of) == 0);
  };
  struct Holder {
    int64_t bytes;
    const OwnerMemory* memory;
  };
  std::vector<Holder> holders;
  for (const OwnerMemory& memory : snapshot.owners) {
    if (memory.device != device || memory.own_bytes <= 0) continue;
    if (!is_all && !is_within(memory.owner, path)) continue;
    if (tag.empty() || is_within(memory.tag, tag)) holders.push_back({memory.own_bytes, &memory});
  }
  std::sort(holders.begin(), holders.end(),
            [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  std::string out;
  for (size_t i = 0; i < std::min(kHoldersNamed, holders.size()); ++i) {
    const OwnerMemory& memory = *holders[i].memory;
    absl::StrAppend(&out, i == 0 ? "" : ", ", memory.owner, memory.tag.empty() ? "" : " #",
                    memory.tag, " ", holders[i].bytes);
    std::string kinds;
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const int64_t bytes = memory.kinds[kind].current_bytes;
      if (bytes == 0) continue;
      absl::StrAppend(&kinds, kinds.empty() ? "" : ", ",
                      MemoryKindName(static_cast<MemoryKind>(kind)), " ", bytes);
    }
    if (memory.own_bytes == memory.total.current_bytes) absl::StrAppend(&out, " (", kinds, ")");
  }
  return out.empty() ? "nobody" : out;
}

}  // namespace

void MemoryBudget::ThrowOverLimit(Device device, MemoryOwner& owner, int64_t bytes,
                                  const char* what, int64_t reclaimed) {
  const MemoryRequest request{device, &owner, bytes, what};
  if (bytes > kMostCountedBytes) {
    ThrowOutOfMemory(request, "a budget",
                     absl::StrCat("memory budget: [", NameOf(owner), "] needs ", bytes,
                                  " bytes on ", DeviceName(device), " for ", what,
                                  ": expected at most ", kMostCountedBytes, " at once"),
                     "");
  }
  Refusal refusal;
  {
    std::lock_guard<std::mutex> lock(MemoryTracker::Global().mutex_);
    refusal = FindRefusal(owner, device, bytes);
  }
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  std::string level = "the process";
  if (!refusal.whole_process && refusal.owner != nullptr) {
    level = refusal.owner->parent() == nullptr
                ? absl::StrCat("device ", DeviceName(device))
                : absl::StrCat("owner [", NameOf(*refusal.owner), "]");
  }
  // Nothing is missing any more when another thread has given back meanwhile.
  const std::string limit =
      refusal.missing == 0 ? "a limit that has room again"
                           : absl::StrCat("the limit of ", level, " is ", refusal.usage.limit_bytes,
                                          " bytes, ", refusal.usage.taken_bytes, " are taken");
  const std::string enough =
      refusal.missing == 0
          ? ""
          : absl::StrCat(", or a limit of ", refusal.usage.limit_bytes + refusal.missing);
  std::string pinned = Reclaimer::Global().DescribePinned();
  if (!pinned.empty()) pinned = absl::StrCat("; ", pinned);
  ThrowOutOfMemory(
      request, "a budget",
      absl::StrCat("memory budget: [", NameOf(owner), "] needs ", bytes, " bytes on ",
                   DeviceName(device), " for ", what, ": ", limit, "; ", reclaimed,
                   " bytes were reclaimed; ", refusal.missing, " bytes more would have to go",
                   enough, "; held by ", Holders(snapshot, device, refusal.owner), pinned),
      absl::StrCat(snapshot.ToString(), snapshot.OwnersToString()));
}

BudgetUsage MemoryBudget::SetProcessLimit(int64_t bytes) {
  return SetLimit(&BudgetLine::limit, process_, nullptr, Host(), bytes, "the process");
}
BudgetUsage MemoryBudget::SetDeviceLimit(Device device, int64_t bytes) {
  CheckDevice("memory budget: device limit", device);
  MemoryOwner& root = MemoryOwner::Process();
  return SetLimit(&BudgetLine::limit, LineOf(root, device), &root, device, bytes,
                  DeviceName(device));
}
BudgetUsage MemoryBudget::SetProcessSoftLimit(int64_t bytes) {
  return SetLimit(&BudgetLine::soft_limit, process_, nullptr, Host(), bytes, "the process (soft)");
}
BudgetUsage MemoryBudget::SetDeviceSoftLimit(Device device, int64_t bytes) {
  CheckDevice("memory budget: device limit", device);
  MemoryOwner& root = MemoryOwner::Process();
  return SetLimit(&BudgetLine::soft_limit, LineOf(root, device), &root, device, bytes,
                  absl::StrCat(DeviceName(device), " (soft)"));
}
BudgetLine& MemoryBudget::LineToLimit(MemoryOwner& owner, Device device) {
  CheckDevice("memory budget: owner limit", device);
  if (owner.is_shared()) {
    ThrowFailedPrecondition(absl::StrCat(
        "memory budget: limit of [", NameOf(owner), "]: there are ", kMaxMemoryOwners,
        " owners, which is all that have limits of their own; this one is all others of [",
        NameOf(*owner.parent()), "] together"));
  }
  MakeLines(owner, device);
  return LineOf(owner, device);
}
BudgetUsage MemoryBudget::SetOwnerLimit(MemoryOwner& owner, Device device, int64_t bytes) {
  return SetLimit(&BudgetLine::limit, LineToLimit(owner, device), &owner, device, bytes,
                  NameOf(owner));
}
BudgetUsage MemoryBudget::SetOwnerSoftLimit(MemoryOwner& owner, Device device, int64_t bytes) {
  return SetLimit(&BudgetLine::soft_limit, LineToLimit(owner, device), &owner, device, bytes,
                  absl::StrCat(NameOf(owner), " (soft)"));
}

}  // namespace tidepool
