#include "tidepool/memory/recording/advice.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/recording/recorded_cycles.h"

namespace tidepool {
namespace {

using What = RecordEvent::What;
using Use = CycleAdvice::Use;

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kSmallBytes = 512;
constexpr uint64_t kLeastCycles = 3;
// Larger cycles are not planned here: a workspace does that in its own time.
constexpr size_t kMostPlanned = 20000;

uint64_t Rounded(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

// The requests of one cycle that end with it.
struct Cycle {
  uint64_t signature = 1469598103934665603u;
  uint64_t requested = 0;
  std::vector<uint32_t> blocks;
};

// Lifetimes in steps of the record's events.
std::vector<LifetimeBuffer> Lifetimes(const Record& record, const RecordedBlocks& matched,
                                      const std::vector<uint32_t>& blocks) {
  std::vector<LifetimeBuffer> buffers;
  for (const uint32_t index : blocks) {
    const RecordedBlock& block = matched.blocks[index];
    buffers.push_back(
        {block.made, block.freed, static_cast<int64_t>(Rounded(record.events[block.made].bytes))});
  }
  return buffers;
}

uint64_t LiveBound(const std::vector<LifetimeBuffer>& buffers) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const LifetimeBuffer& buffer : buffers) {
    changes.emplace_back(buffer.lower, buffer.size);
    changes.emplace_back(buffer.upper, -buffer.size);
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, live += change);
  return static_cast<uint64_t>(most);
}

std::string Percent(uint64_t part, uint64_t whole) {
  std::string text;
  AppendFixed(&text, whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0,
              1);
  return text + " %";
}

std::string MiB(uint64_t bytes) {
  std::string text;
  AppendFixed(&text, static_cast<double>(bytes) / (1 << 20), bytes < (10 << 20) ? 2 : 0);
  return text + " MiB";
}

void Decide(record::Source source, CycleAdvice& advice) {
  const std::string name = advice.name.empty() ? "cycle" : advice.name;
  if (advice.cycles < kLeastCycles) {
    advice.why = absl::StrCat("only ", advice.cycles, " cycles, expected ", kLeastCycles,
                              " at least: nothing can be learned");
    return;
  }
  if (advice.requests_within * 4 < advice.requests) {
    advice.why = absl::StrCat(Percent(advice.requests_within, advice.requests),
                              " of its requests end with it: cycles begin or end elsewhere");
    return;
  }
  const bool repeats = advice.cycles_that_repeat * 2 > advice.cycles;
  const bool small = advice.small_requests * 10 > advice.requests_within * 9;
  advice.config = WorkspaceConfig::Inference();
  if (!repeats || (small && (source == record::Source::kMalloc ||
                             advice.requests_within > 1000 * advice.cycles))) {
    advice.use = Use::kContainers;
    advice.why =
        repeats ? "its blocks are small, as containers' are: bytes without records, nothing to plan"
                : "its cycles are not alike: memory is kept from cycle to cycle, nothing to plan";
    advice.code = {
        absl::StrCat("Workspace workspace(\"", name, "\", WorkspaceConfig::Inference());"),
        "WorkspaceResource resource(workspace);  // for std::pmr containers; docs/containers.md",
        "WorkspaceScope scope(workspace);        // in each cycle, around all it makes"};
    return;
  }
  const bool one = advice.kinds == 1;
  advice.use = one ? Use::kPlans : Use::kManyPlans;
  if (one) advice.config = WorkspaceConfig::Training();
  advice.config.initial_size = advice.planned_bytes;
  advice.why =
      one ? "one plan serves all of its cycles"
          : absl::StrCat("a plan for each of ", advice.kinds, " kinds of cycles, ",
                         Percent(advice.cycles_that_repeat, advice.cycles), " of which come again");
  advice.code = {absl::StrCat("WorkspaceConfig config = WorkspaceConfig::",
                              one ? "Training" : "Inference", "();"),
                 absl::StrCat("config.initial_size = ", advice.planned_bytes,
                              ";  // the first cycle has its pages too"),
                 absl::StrCat("Workspace workspace(\"", name, "\", config);"),
                 "WorkspaceScope scope(workspace);  // in each cycle, around all it makes"};
}

CycleAdvice AdviseOn(const Record& record, const RecordedBlocks& matched, CycleAdvice advice,
                     const std::vector<const Cycle*>& cycles) {
  std::unordered_map<uint64_t, std::pair<uint64_t, const Cycle*>> kinds;
  for (const Cycle* const cycle : cycles) {
    auto& [count, one] = kinds[cycle->signature];
    ++count;
    one = cycle;
    advice.requested_bytes = std::max(advice.requested_bytes, cycle->requested);
  }
  advice.cycles = cycles.size();
  advice.kinds = kinds.size();
  // Lifetimes of one cycle of each kind; the largest sums first, of so many kinds as is worth it.
  std::vector<const Cycle*> largest;
  for (const auto& [signature, kind] : kinds) {
    if (kind.first > 1) advice.cycles_that_repeat += kind.first;
    largest.push_back(kind.second);
  }
  std::sort(largest.begin(), largest.end(), [](const Cycle* a, const Cycle* b) {
    return std::pair(a->requested, a->signature) > std::pair(b->requested, b->signature);
  });
  if (largest.size() > 64) largest.resize(64);
  for (const Cycle* const cycle : largest) {
    const std::vector<LifetimeBuffer> buffers = Lifetimes(record, matched, cycle->blocks);
    const uint64_t bound = LiveBound(buffers);
    advice.live_bound = std::max(advice.live_bound, bound);
    if (buffers.size() > kMostPlanned || buffers.empty()) {
      advice.planned_bytes = std::max(advice.planned_bytes, bound);
      continue;
    }
    advice.planned_bytes =
        std::max(advice.planned_bytes, static_cast<uint64_t>(PlanGreedy(buffers, kAlignment).peak));
  }
  Decide(record.source, advice);
  return advice;
}

const char* UseName(Use use) {
  switch (use) {
    case Use::kPlans:
      return "plans";
    case Use::kManyPlans:
      return "many plans";
    case Use::kContainers:
      return "containers";
    case Use::kNothing:
      return "nothing";
  }
  return "";
}

}  // namespace

Advice Advise(const Record& record) {
  const RecordedBlocks matched = MatchBlocks(record);
  const RecordedCycles found = FindCycles(record, matched);
  Advice advice;
  advice.threads = record.threads;
  advice.requests = matched.blocks.size();
  advice.cycles = found.cycles.size();
  advice.live_bound = matched.live_bound;
  advice.by_marks = found.by_marks;
  advice.period = found.period;
  advice.outside = advice.requests - found.in_cycles - found.outliving;

  std::vector<Cycle> cycles(found.cycles.size());
  using Key = std::pair<uint32_t, uint32_t>;  // name, thread
  std::map<Key, CycleAdvice> groups;
  const auto key_of = [&](uint32_t cycle) {
    const RecordedCycle& of = found.cycles[cycle];
    return Key(of.name, found.by_marks ? 0 : of.thread);
  };
  for (uint32_t i = 0; i < found.cycles.size(); ++i) {
    CycleAdvice& group = groups[key_of(i)];
    group.name = record.names[found.cycles[i].name];
    group.thread = found.cycles[i].thread;
    if (group.name.rfind("workspace ", 0) == 0) group.name = group.name.substr(10);
  }
  for (uint32_t block = 0; block < matched.blocks.size(); ++block) {
    const uint32_t made_in = found.made_in[block];
    if (made_in == RecordedCycles::kNone) continue;
    const RecordEvent& made = record.events[matched.blocks[block].made];
    CycleAdvice& group = groups[key_of(made_in)];
    ++group.requests;
    if (found.cycle_of[block] == RecordedCycles::kNone) {
      ++group.outliving;
      group.outliving_bytes += made.bytes;
      continue;
    }
    ++group.requests_within;
    if (made.bytes <= kSmallBytes) ++group.small_requests;
    Cycle& cycle = cycles[made_in];
    cycle.signature = (cycle.signature ^ Rounded(made.bytes)) * 1099511628211u;
    cycle.requested += Rounded(made.bytes);
    cycle.blocks.push_back(block);
  }
  std::map<Key, std::vector<const Cycle*>> of_group;
  for (uint32_t i = 0; i < cycles.size(); ++i) of_group[key_of(i)].push_back(&cycles[i]);
  for (auto& [key, group] : groups) {
    advice.of_cycles.push_back(AdviseOn(record, matched, std::move(group), of_group[key]));
  }
  std::stable_sort(
      advice.of_cycles.begin(), advice.of_cycles.end(),
      [](const CycleAdvice& a, const CycleAdvice& b) { return a.requests > b.requests; });
  return advice;
}

std::string Advice::ToString() const {
  std::string out =
      absl::StrCat(requests, " requests of ", threads, threads == 1 ? " thread" : " threads",
                   ", at most ", MiB(live_bound), " alive at once\n");
  if (by_marks) {
    absl::StrAppend(&out, cycles, " cycles, as the program marked them\n");
  } else if (period > 0) {
    absl::StrAppend(&out, cycles, " cycles, found by their period: ", period, " requests\n");
  } else {
    absl::StrAppend(
        &out,
        "no cycles: nothing is marked (tidepool_mark_cycle_begin() in record_marks.h does), "
        "and no thread's requests repeat\n");
  }
  if (cycles > 0)
    absl::StrAppend(&out, outside, " requests (", Percent(outside, requests),
                    ") outside of cycles\n");
  for (const CycleAdvice& of : of_cycles) {
    absl::StrAppend(&out, "\n", of.name.empty() ? absl::StrCat("thread ", of.thread) : of.name,
                    ": ", of.cycles, of.cycles == 1 ? " cycle of " : " cycles of ", of.kinds,
                    of.kinds == 1 ? " kind" : " kinds", ", ",
                    of.cycles > 0 ? of.requests / of.cycles : 0, " requests each\n");
    absl::StrAppend(&out, "  ", of.requests_within, " requests (",
                    Percent(of.requests_within, of.requests),
                    ") end with their cycle: a workspace serves them without the allocator\n");
    if (of.outliving > 0) {
      absl::StrAppend(
          &out, "  ", of.outliving, " of ", MiB(of.outliving_bytes),
          " outlive it: make them before the scope, or step out of it (ScopeOutOfWorkspaces)\n");
    }
    absl::StrAppend(&out, "  a cycle asks for ", MiB(of.requested_bytes), ", has ",
                    MiB(of.live_bound), " alive at once, is planned into ", MiB(of.planned_bytes),
                    "\n");
    absl::StrAppend(&out, "  ", of.why, of.code.empty() ? "\n" : ":\n");
    for (const std::string& line : of.code) absl::StrAppend(&out, "    ", line, "\n");
  }
  return out;
}

void Advice::AddTo(JsonWriter& json) const {
  json.Member("threads", threads);
  json.Member("requests", requests);
  json.Member("live_bound_bytes", live_bound);
  json.Member("cycles", cycles);
  json.Member("cycles_by", by_marks ? "marks" : period > 0 ? "period" : "none");
  json.Member("period_requests", period);
  json.Member("requests_outside", outside);
  json.Key("advice");
  json.BeginArray();
  for (const CycleAdvice& of : of_cycles) {
    json.BeginObject();
    json.Member("name", of.name);
    json.Member("thread", of.thread);
    json.Member("use", UseName(of.use));
    json.Member("cycles", of.cycles);
    json.Member("kinds", of.kinds);
    json.Member("cycles_that_repeat", of.cycles_that_repeat);
    json.Member("requests", of.requests);
    json.Member("requests_within", of.requests_within);
    json.Member("outliving", of.outliving);
    json.Member("outliving_bytes", of.outliving_bytes);
    json.Member("requested_bytes", of.requested_bytes);
    json.Member("live_bound_bytes", of.live_bound);
    json.Member("planned_bytes", of.planned_bytes);
    json.Member("why", of.why);
    json.Key("code");
    json.BeginArray();
    for (const std::string& line : of.code) json.String(line);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace tidepool
