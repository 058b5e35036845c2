#include "tidepool/memory/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/metrics/exposition_writer.h"
#include "tidepool/memory/metrics/spill_metrics.h"
#include "tidepool/memory/workspace/pool_census.h"
#include "tidepool/memory/workspace/ring_census.h"
#include "tidepool/memory/workspace/workspace_census.h"

namespace tidepool {
namespace {

constexpr auto kCounter = ExpositionWriter::Type::kCounter;
constexpr auto kGauge = ExpositionWriter::Type::kGauge;

const char* KindName(int kind) { return MemoryKindName(static_cast<MemoryKind>(kind)); }

void One(ExpositionWriter& text, std::string_view name, ExpositionWriter::Type type,
         std::string_view help, auto value) {
  text.Family(name, type, help);
  text.Sample({}, value);
}

// ---- the ledger -----------------------------------------------------------------------------

// Different nodes may have one path ("a/b", and "b" below "a"): a series may be there once.
void JoinSamePaths(std::vector<OwnerMemory>& owners) {
  const auto key = [](const OwnerMemory& memory) {
    return std::make_tuple(memory.device.type.number(), memory.device.index,
                           std::string_view(memory.owner), std::string_view(memory.tag));
  };
  std::stable_sort(owners.begin(), owners.end(),
                   [&](const OwnerMemory& a, const OwnerMemory& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (kept > 0 && key(owners[kept - 1]) == key(owners[i])) {
      OwnerMemory& same = owners[kept - 1];
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        same.kinds[kind].current_bytes += owners[i].kinds[kind].current_bytes;
        same.kinds[kind].peak_bytes += owners[i].kinds[kind].peak_bytes;
      }
      same.own_bytes += owners[i].own_bytes;
      continue;
    }
    if (kept != i) owners[kept] = std::move(owners[i]);
    ++kept;
  }
  owners.resize(kept);
}

void WriteOwners(std::vector<OwnerMemory> owners, ExpositionWriter& text) {
  JoinSamePaths(owners);
  const auto by_kind = [&](const char* name, const char* help, int64_t MemoryUsage::*bytes) {
    text.Family(name, kGauge, help);
    for (const OwnerMemory& memory : owners) {
      const std::string device = DeviceName(memory.device);
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        if (memory.kinds[kind].peak_bytes == 0) continue;  // it never had any
        text.Sample({{"device", device},
                     {"owner", memory.owner},
                     {"tag", memory.tag},
                     {"kind", KindName(kind)}},
                    memory.kinds[kind].*bytes);
      }
    }
  };
  by_kind("tidepool_owner_memory_bytes", "Bytes an owner holds, those below it included.",
          &MemoryUsage::current_bytes);
  by_kind("tidepool_owner_memory_peak_bytes", "The most bytes of a kind that an owner has held.",
          &MemoryUsage::peak_bytes);
  text.Family("tidepool_owner_own_bytes", kGauge, "Bytes an owner holds without those below it.");
  for (const OwnerMemory& memory : owners) {
    text.Sample(
        {{"device", DeviceName(memory.device)}, {"owner", memory.owner}, {"tag", memory.tag}},
        memory.own_bytes);
  }
}

void WriteMirrors(const MemorySnapshot& snapshot, ExpositionWriter& text) {
  const auto both_ways = [&](const char* name, const char* help, uint64_t MirrorCounters::*to_host,
                             uint64_t MirrorCounters::*to_device) {
    text.Family(name, kCounter, help);
    for (const auto& [device, counters] : snapshot.mirrors) {
      text.Sample({{"device", DeviceName(device)}, {"to", "host"}}, counters.*to_host);
      text.Sample({{"device", DeviceName(device)}, {"to", "device"}}, counters.*to_device);
    }
  };
  both_ways("tidepool_mirror_copies_total", "Copies between a device and the host.",
            &MirrorCounters::copies_to_host, &MirrorCounters::copies_to_device);
  both_ways("tidepool_mirror_bytes_total", "Bytes of those copies.", &MirrorCounters::bytes_to_host,
            &MirrorCounters::bytes_to_device);
  both_ways("tidepool_mirror_avoided_total", "Accesses that found their bytes fresh.",
            &MirrorCounters::avoided_to_host, &MirrorCounters::avoided_to_device);
}

void WriteLedger(const MetricsOptions& options, ExpositionWriter& text) {
  MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  const auto by_kind = [&](const char* name, const char* help, int64_t MemoryUsage::*bytes) {
    text.Family(name, kGauge, help);
    for (const DeviceMemory& memory : snapshot.devices) {
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        text.Sample({{"device", DeviceName(memory.device)}, {"kind", KindName(kind)}},
                    memory.kinds[kind].*bytes);
      }
    }
  };
  by_kind("tidepool_memory_bytes", "Bytes on the ledger.", &MemoryUsage::current_bytes);
  by_kind("tidepool_memory_peak_bytes", "The most bytes of a kind at once.",
          &MemoryUsage::peak_bytes);
  text.Family("tidepool_memory_all_kinds_peak_bytes", kGauge,
              "The most bytes of all kinds at once.");
  for (const DeviceMemory& memory : snapshot.devices) {
    text.Sample({{"device", DeviceName(memory.device)}}, memory.total.peak_bytes);
  }
  if (options.by_owner) WriteOwners(std::move(snapshot.owners), text);
  One(text, "tidepool_system_allocations_total", kCounter,
      "How often the system was asked for tensor memory.", snapshot.system_allocations);
  One(text, "tidepool_system_releases_total", kCounter, "How often it was given back.",
      snapshot.system_releases);
  One(text, "tidepool_leaked_arrays_total", kCounter, "Arrays alive when their cycle ended.",
      snapshot.leaked_arrays);
  One(text, "tidepool_host_fallbacks_total", kCounter,
      "Operators meant for a device that ran on the host.", snapshot.host_fallbacks);
  WriteMirrors(snapshot, text);
  internal::WriteSpillMetrics(snapshot.spilled, snapshot.spill_tiers, text);
}

// ---- budgets --------------------------------------------------------------------------------

struct Line {
  const char* scope;
  std::string device, owner, tag;
  BudgetUsage usage;
};

std::vector<Line> BudgetLines(bool by_owner) {
  const MemoryBudget& budget = MemoryBudget::Global();
  const MemoryOwnersHold hold;
  std::vector<Line> lines = {{"process", "", "", "", budget.process()}};
  std::map<std::tuple<std::string, std::string, std::string>, BudgetUsage> owners;
  ForEachPossibleDevice([&](Device device) {
    const BudgetUsage all = budget.Of(device);
    if (all.requests == 0 && all.limit_bytes == MemoryBudget::kUnlimited) return;
    lines.push_back({"device", DeviceName(device), "", "", all});
    if (!by_owner) return;
    for (const MemoryOwner* owner : MemoryOwner::All()) {
      if (owner->parent() == nullptr) continue;
      const BudgetUsage usage = budget.Of(*owner, device);
      if (usage.requests == 0 && usage.limit_bytes == MemoryBudget::kUnlimited) continue;
      // Of nodes with one path the lowest limit, as a series may be there once.
      BudgetUsage& sum = owners[{DeviceName(device), owner->Path(), owner->Tag()}];
      sum.taken_bytes += usage.taken_bytes;
      sum.limit_bytes = std::min(sum.limit_bytes, usage.limit_bytes);
      sum.requests += usage.requests;
      sum.requested_bytes += usage.requested_bytes;
      sum.level = std::max(sum.level, usage.level);
    }
  });
  for (auto& [key, usage] : owners) {
    lines.push_back({"owner", std::get<0>(key), std::get<1>(key), std::get<2>(key), usage});
  }
  return lines;
}

void WriteBudgets(const MetricsOptions& options, ExpositionWriter& text) {
  const std::vector<Line> lines = BudgetLines(options.by_owner);
  const auto each = [&](const char* name, ExpositionWriter::Type type, const char* help,
                        int64_t BudgetUsage::*value) {
    text.Family(name, type, help);
    for (const Line& line : lines) {
      if (line.usage.*value == MemoryBudget::kUnlimited) continue;
      text.Sample({{"scope", line.scope},
                   {"device", line.device},
                   {"owner", line.owner},
                   {"tag", line.tag}},
                  line.usage.*value);
    }
  };
  each("tidepool_budget_taken_bytes", kGauge, "Bytes taken from the system, as budgets count them.",
       &BudgetUsage::taken_bytes);
  each("tidepool_budget_limit_bytes", kGauge, "Limits that are set.", &BudgetUsage::limit_bytes);
  text.Family("tidepool_budget_level", kGauge,
              "Level of a budget that has a limit: 0 normal, 1 high (80 %), 2 critical (95 %).");
  for (const Line& line : lines) {
    if (line.usage.limit_bytes == MemoryBudget::kUnlimited) continue;
    text.Sample(
        {{"scope", line.scope}, {"device", line.device}, {"owner", line.owner}, {"tag", line.tag}},
        static_cast<int64_t>(line.usage.level));
  }
  each("tidepool_budget_requests_total", kCounter, "Requests that budgets granted.",
       &BudgetUsage::requests);
  each("tidepool_budget_requested_bytes_total", kCounter, "Bytes that budgets granted.",
       &BudgetUsage::requested_bytes);
}

// ---- workspaces, pools, rings -------------------------------------------------------------------

// All of a device under the empty id, which is no label.
template <typename Group, typename Join>
std::vector<Group> ByDevice(const std::vector<Group>& groups, const Join& join) {
  std::vector<Group> sums;
  for (const Group& group : groups) {
    auto sum = std::find_if(sums.begin(), sums.end(),
                            [&](const Group& other) { return other.device == group.device; });
    if (sum == sums.end()) {
      sums.emplace_back().device = group.device;
      sum = sums.end() - 1;
    }
    sum->alive += group.alive;
    join(group, &*sum);
  }
  return sums;
}

template <typename Group, typename Stats, size_t kFields>
void WriteFields(const std::vector<Group>& groups, const char* what,
                 const internal::StatsField<Stats> (&fields)[kFields], ExpositionWriter& text) {
  for (const internal::StatsField<Stats>& field : fields) {
    text.Family(absl::StrCat("tidepool_", what, "_", field.name, field.is_counter ? "_total" : ""),
                field.is_counter ? kCounter : kGauge, field.help);
    for (const Group& group : groups) {
      text.Sample({{what, group.id}, {"device", DeviceName(group.device)}},
                  uint64_t{group.stats.*field.value});
    }
  }
}

void WriteWorkspaces(const MetricsOptions& options, ExpositionWriter& text) {
  std::vector<WorkspaceGroup> groups = ReadWorkspaces();
  if (!options.by_id) {
    groups = ByDevice(groups, [](const WorkspaceGroup& group, WorkspaceGroup* sum) {
      sum->open += group.open;
      internal::AddStats(internal::kWorkspaceFields, group.stats, false, &sum->stats);
    });
  }
  const auto count = [&](const char* name, const char* help, size_t WorkspaceGroup::*value) {
    text.Family(name, kGauge, help);
    for (const WorkspaceGroup& group : groups) {
      text.Sample({{"workspace", group.id}, {"device", DeviceName(group.device)}},
                  uint64_t{group.*value});
    }
  };
  count("tidepool_workspaces", "Workspaces there are.", &WorkspaceGroup::alive);
  count("tidepool_workspaces_open", "Workspaces in a cycle.", &WorkspaceGroup::open);
  WriteFields(groups, "workspace", internal::kWorkspaceFields, text);
}

void WritePools(const MetricsOptions& options, ExpositionWriter& text) {
  std::vector<PoolGroup> groups = ReadPools();
  if (!options.by_id) {
    groups = ByDevice(groups, [](const PoolGroup& group, PoolGroup* sum) {
      internal::AddStats(internal::kPoolFields, group.stats, false, &sum->stats);
      sum->stats.workspaces += group.stats.workspaces;
      sum->stats.leased += group.stats.leased;
    });
  }
  text.Family("tidepool_pools", kGauge, "Pools of workspaces there are.");
  for (const PoolGroup& group : groups) {
    text.Sample({{"pool", group.id}, {"device", DeviceName(group.device)}}, uint64_t{group.alive});
  }
  text.Family("tidepool_pool_workspaces", kGauge, "Workspaces of pools by what they are now.");
  for (const PoolGroup& group : groups) {
    const std::string device = DeviceName(group.device);
    const size_t idle = group.stats.workspaces - group.stats.leased;
    text.Sample({{"pool", group.id}, {"device", device}, {"state", "idle"}}, uint64_t{idle});
    text.Sample({{"pool", group.id}, {"device", device}, {"state", "leased"}},
                uint64_t{group.stats.leased});
  }
  WriteFields(groups, "pool", internal::kPoolFields, text);
}

void WriteRings(const MetricsOptions& options, ExpositionWriter& text) {
  std::vector<RingGroup> groups = ReadRings();
  if (!options.by_id) {
    groups = ByDevice(groups, [](const RingGroup& group, RingGroup* sum) {
      internal::AddStats(internal::kRingFields, group.stats, false, &sum->stats);
      sum->stats.idle += group.stats.idle;
      sum->stats.open += group.stats.open;
      sum->stats.leased += group.stats.leased;
      sum->stats.kept += group.stats.kept;
    });
  }
  text.Family("tidepool_rings", kGauge, "Rings there are.");
  for (const RingGroup& group : groups) {
    text.Sample({{"ring", group.id}, {"device", DeviceName(group.device)}}, uint64_t{group.alive});
  }
  text.Family("tidepool_ring_slots", kGauge, "Slots by what they are now.");
  for (const RingGroup& group : groups) {
    const std::string device = DeviceName(group.device);
    for (const auto& [state, slots] : {std::pair<const char*, int>{"idle", group.stats.idle},
                                       {"open", group.stats.open},
                                       {"leased", group.stats.leased}}) {
      text.Sample({{"ring", group.id}, {"device", device}, {"state", state}}, int64_t{slots});
    }
  }
  text.Family("tidepool_ring_slots_kept", kGauge, "Leased slots that are kept.");
  for (const RingGroup& group : groups) {
    text.Sample({{"ring", group.id}, {"device", DeviceName(group.device)}},
                int64_t{group.stats.kept});
  }
  WriteFields(groups, "ring", internal::kRingFields, text);
}

// ---- the rest -------------------------------------------------------------------------------

void WriteReclaimer(ExpositionWriter& text) {
  const Reclaimer& reclaimer = Reclaimer::Global();
  const Reclaimer::Stats stats = reclaimer.stats();
  text.Family("tidepool_reclaimer_runs_total", kCounter, "Runs of the Reclaimer by why.");
  text.Sample({{"why", "periodic"}}, stats.periodic_runs);
  text.Sample({{"why", "pressure"}}, stats.pressure_runs);
  One(text, "tidepool_reclaimer_reclaimed_bytes_total", kCounter,
      "Bytes that the Reclaimer gave back.", stats.reclaimed_bytes);
  One(text, "tidepool_reclaimer_spilled_bytes_total", kCounter,
      "Of them, bytes of arrays that were written to spill files or dropped to be computed again.",
      stats.spilled_bytes);
  One(text, "tidepool_reclaimer_enabled", kGauge, "Whether the Reclaimer runs by itself.",
      int64_t{reclaimer.enabled()});
  const absl::Duration window = reclaimer.window();
  One(text, "tidepool_reclaimer_window_seconds", kGauge, "Time between two periodic runs; 0: none.",
      std::max(0.0, absl::ToDoubleSeconds(window)));
}

void WriteProcess(ExpositionWriter& text) {
  One(text, "tidepool_process_resident_bytes", kGauge,
      "Physical memory of the process, as the system counts.", ResidentBytes());
  One(text, "tidepool_process_page_faults_total", kCounter, "Page faults, minor and major.",
      PageFaults());
  if (const int64_t calls = MemorySystemCalls(); calls >= 0) {
    One(text, "tidepool_process_memory_system_calls_total", kCounter,
        "System calls for memory, of any library.", calls);
  }
}

}  // namespace

std::string MetricsText(const MetricsOptions& options) {
  ExpositionWriter text;
  WriteLedger(options, text);
  WriteBudgets(options, text);
  WriteWorkspaces(options, text);
  WritePools(options, text);
  WriteRings(options, text);
  WriteReclaimer(text);
  WriteProcess(text);
  return std::move(text).Take();
}

}  // namespace tidepool
