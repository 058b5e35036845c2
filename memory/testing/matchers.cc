#include "tidepool/memory/testing/matchers.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/device_check.h"

namespace tidepool {
namespace {

using Matcher = ::testing::PolymorphicMatcher<MemoryMatcher>;

Matcher Make(std::string expectation, MemoryJudge judge) {
  return ::testing::MakePolymorphicMatcher(MemoryMatcher(std::move(expectation), std::move(judge)));
}

std::string NameOf(const OwnerMemory& memory) {
  return memory.tag.empty() ? memory.owner : absl::StrCat(memory.owner, " #", memory.tag);
}

const OwnerMemory* Find(const MemorySnapshot& snapshot, const OwnerMemory& like) {
  for (const OwnerMemory& memory : snapshot.owners) {
    if (memory.device == like.device && memory.owner == like.owner && memory.tag == like.tag) {
      return &memory;
    }
  }
  return nullptr;
}

int64_t InUse(const OwnerMemory& memory) {
  return memory.total.current_bytes - memory[MemoryKind::kUnreferenced].current_bytes;
}

// "\n  on host, net #conv: allocated +4096": kinds whose bytes grew, of each owner; what an owner
// holds includes what is below it, so the most precise line is the last.
std::string Growth(const MemorySnapshot& before, const MemorySnapshot& after, bool in_use_only) {
  std::string out;
  for (const OwnerMemory& memory : after.owners) {
    const OwnerMemory* was = Find(before, memory);
    std::string kinds;
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      if (in_use_only && kind == static_cast<int>(MemoryKind::kUnreferenced)) continue;
      const int64_t grown =
          memory.kinds[kind].current_bytes - (was != nullptr ? was->kinds[kind].current_bytes : 0);
      if (grown <= 0) continue;
      absl::StrAppend(&kinds, kinds.empty() ? "" : ", ",
                      MemoryKindName(static_cast<MemoryKind>(kind)), " +", grown);
    }
    if (!kinds.empty()) {
      absl::StrAppend(&out, "\n  on ", DeviceName(memory.device), ", ", NameOf(memory), ": ",
                      kinds);
    }
  }
  return out;
}

// How often, and for how many bytes, each owner asked the system, counted from construction.
class RequestsByOwner {
 public:
  RequestsByOwner() : before_(Read()) {}

  // "\n  on host, net #conv: 3 requests of 4096 bytes in all"; of the nodes themselves.
  std::string Describe() const {
    Counts now = Read();
    for (auto& [node, asked] : now) {
      if (const auto was = before_.find(node); was != before_.end()) {
        asked.requests -= was->second.requests;
        asked.bytes -= was->second.bytes;
      }
    }
    const Counts with_below = now;
    for (const auto& [node, asked] : with_below) {
      const auto parent = now.find({node.first, node.second->parent()});
      if (parent == now.end()) continue;
      parent->second.requests -= asked.requests;
      parent->second.bytes -= asked.bytes;
    }
    std::string out;
    for (const auto& [node, asked] : now) {
      if (asked.requests <= 0) continue;
      const std::string tag = node.second->Tag();
      absl::StrAppend(&out, "\n  on ", DeviceName(DeviceAt(node.first)), ", ", node.second->Path(),
                      tag.empty() ? "" : " #", tag, ": ", asked.requests,
                      asked.requests == 1 ? " request of " : " requests of ", asked.bytes,
                      " bytes in all");
    }
    return out;
  }

 private:
  struct Asked {
    int64_t requests;
    int64_t bytes;
  };
  using Counts = std::map<std::pair<int, const MemoryOwner*>, Asked>;  // by device and node

  static Counts Read() {
    Counts counts;
    for (const MemoryOwner* owner : MemoryOwner::All()) {
      ForEachPossibleDevice([&](Device device) {
        const BudgetUsage usage = MemoryBudget::Global().Of(*owner, device);
        if (usage.requests == 0) return;
        const int place = DevicePlace("memory matcher", device);
        counts[{place, owner}] = {usage.requests, usage.requested_bytes};
      });
    }
    return counts;
  }

  const MemoryOwnersHold hold_;
  const Counts before_;
};

}  // namespace

Matcher AllocatesNothing() {
  return Make("asks the system for no tensor memory", [](const std::function<void()>& action) {
    MemoryTracker& tracker = MemoryTracker::Global();
    const MemorySnapshot before = tracker.Snapshot();
    const RequestsByOwner requests;
    PeakScope peak;
    action();
    const MemorySnapshot after = tracker.Snapshot();
    const int64_t asked = after.system_allocations - before.system_allocations;
    if (asked == 0) return MemoryVerdict{true, "which asked the system for nothing"};
    std::string text =
        absl::StrCat("which asked the system ", asked, asked == 1 ? " time" : " times",
                     " for tensor memory; at most ", peak.peak_bytes() - peak.start().total,
                     " bytes more were held on the host:", requests.Describe());
    const std::string growth = Growth(before, after, false);
    absl::StrAppend(&text, growth.empty() ? "\n  all given back" : "\n  still held:", growth);
    return MemoryVerdict{false, text};
  });
}

Matcher PeakAtMost(int64_t bytes, Device device) {
  return Make(absl::StrCat("uses at most ", bytes, " bytes more on ", DeviceName(device)),
              [bytes, device](const std::function<void()>& action) {
                PeakScope peak(device);
                action();
                peak.End();
                const PeakScope::Bytes start = peak.start(), most = peak.peak();
                const int64_t used = most.in_use - start.in_use;
                std::string text = absl::StrCat("which used ", used, " bytes more at once");
                if (used > bytes) absl::StrAppend(&text, ", ", used - bytes, " too many");
                for (int kind = 0; kind < kMemoryKinds; ++kind) {
                  const int64_t grown = most.kinds[kind] - start.kinds[kind];
                  if (grown <= 0 || kind == static_cast<int>(MemoryKind::kUnreferenced)) continue;
                  absl::StrAppend(&text, "\n  ", MemoryKindName(static_cast<MemoryKind>(kind)),
                                  " at most +", grown);
                }
                return MemoryVerdict{used <= bytes, text};
              });
}

Matcher LeaksNothing() {
  return Make("leaves no memory in use behind", [](const std::function<void()>& action) {
    MemoryTracker& tracker = MemoryTracker::Global();
    const MemorySnapshot before = tracker.Snapshot();
    action();
    const MemorySnapshot after = tracker.Snapshot();
    bool fits = true;
    for (const OwnerMemory& memory : after.owners) {
      const OwnerMemory* was = Find(before, memory);
      if (memory.owner == "process" && memory.tag.empty() &&
          InUse(memory) > (was != nullptr ? InUse(*was) : 0)) {
        fits = false;
      }
    }
    std::string text = fits ? "which left no memory in use" : "which left memory in use:";
    if (!fits) text += Growth(before, after, true);
    if (const int64_t leaked = after.leaked_arrays - before.leaked_arrays; leaked > 0) {
      fits = false;
      absl::StrAppend(&text, "; ", leaked, leaked == 1 ? " array" : " arrays",
                      " outlived the cycle of a workspace");
    }
    return MemoryVerdict{fits, text};
  });
}

Matcher StaysInPlan(const Workspace& workspace) {
  return Make(absl::StrCat("runs cycles of workspace [", workspace.id(), "] as planned"),
              [&workspace](const std::function<void()>& action) {
                const WorkspaceStats before = workspace.stats();
                action();
                const WorkspaceStats after = workspace.stats();
                std::vector<std::string> reasons;
                auto expect = [&](bool holds, auto&&... text) {
                  if (!holds) reasons.push_back(absl::StrCat(text...));
                };
                const uint64_t cycles = after.cycles - before.cycles;
                expect(cycles > 0, "ended no cycle");
                expect(before.planned_requests > 0,
                       "had no plan yet: run as many cycles before as it learns from");
                expect(after.plans == before.plans, "made ", after.plans - before.plans,
                       " new plans");
                expect(after.misses == before.misses, "missed the plan in ",
                       after.misses - before.misses, " requests");
                expect(after.spills == before.spills, "served ", after.spills - before.spills,
                       " requests (", after.spilled_bytes - before.spilled_bytes,
                       " bytes) outside of the pages");
                expect(after.size_bytes == before.size_bytes, "changed its size from ",
                       before.size_bytes, " to ", after.size_bytes, " bytes");
                if (reasons.empty()) {
                  return MemoryVerdict{
                      true, absl::StrCat("which ran ", cycles, " cycles with ",
                                         after.hits - before.hits, " requests as planned")};
                }
                std::string text = absl::StrCat("whose workspace, in ", cycles, " cycles");
                for (size_t i = 0; i < reasons.size(); ++i) {
                  absl::StrAppend(&text, i == 0 ? ", " : "; ", reasons[i]);
                }
                return MemoryVerdict{false, text};
              });
}

}  // namespace tidepool
