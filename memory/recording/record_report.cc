#include "tidepool/memory/recording/record_report.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/recording/recorded_blocks.h"

namespace tidepool {
namespace {

using Part = RecordReport::Part;
using What = RecordEvent::What;

struct Counted {
  Part part;
  int64_t now = 0;

  void Add(int64_t bytes) { part.peak_bytes = std::max(part.peak_bytes, now += bytes); }
  void Request(int64_t bytes) {
    ++part.requests;
    part.requested_bytes += bytes;
    Add(bytes);
  }
  bool is_there() const { return part.requests > 0 || part.peak_bytes > 0; }
};

// All that is counted of a record, by the indices its events have.
class Counts {
 public:
  explicit Counts(const Record& record)
      : record_(record),
        devices_(record.names.size()),
        owners_(record.names.size()),
        kinds_(kMemoryKinds) {}

  // `known`: one block of its size.
  template <typename Change>
  void ForEach(const RecordEvent& event, bool known, const Change& change) {
    change(all_);
    change(devices_[event.device]);
    change(owners_[event.owner]);
    change(kinds_[static_cast<size_t>(event.kind)]);
    if (known) change(sizes_[event.bytes]);
  }
  template <typename Change>
  void ForAll(const Change& change) {
    change(all_);
    for (auto* const parts : {&devices_, &owners_, &kinds_}) {
      for (Counted& part : *parts) change(part);
    }
    for (auto& [size, part] : sizes_) change(part);
  }
  void Tell(RecordReport& report) {
    ForAll([](Counted& counted) { counted.part.at_end_bytes = counted.now; });
    report.all = all_.part;
    for (uint32_t i = 0; i < record_.names.size(); ++i) {
      if (devices_[i].is_there())
        report.devices[i == 0 ? "host" : record_.names[i]] = devices_[i].part;
      if (owners_[i].is_there()) report.owners[record_.names[i]] = owners_[i].part;
    }
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      if (kinds_[kind].is_there())
        report.kinds[MemoryKindName(static_cast<MemoryKind>(kind))] = kinds_[kind].part;
    }
    for (const auto& [size, counted] : sizes_) report.sizes[size] = counted.part;
  }

 private:
  const Record& record_;
  Counted all_;
  std::vector<Counted> devices_, owners_, kinds_;
  absl::flat_hash_map<uint64_t, Counted> sizes_;
};

void AddLifetimes(const Record& record, const RecordedBlocks& matched, RecordReport& report) {
  std::vector<uint64_t> requests_before(record.events.size() + 1);
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    requests_before[i + 1] = requests_before[i] + (record.events[i].what == What::kAllocate);
  }
  report.lifetimes = {{0}, {1}, {10}, {100}, {1000}, {10000}, {100000}, {UINT64_MAX}};
  for (const RecordedBlock& block : matched.blocks) {
    const uint64_t lived = block.freed == RecordedBlock::kNever
                               ? UINT64_MAX
                               : requests_before[block.freed] - requests_before[block.made + 1];
    const auto line = std::find_if(report.lifetimes.rbegin(), report.lifetimes.rend(),
                                   [&](const auto& of) { return lived >= of.at_least; });
    ++line->blocks;
    line->bytes += static_cast<int64_t>(record.events[block.made].bytes);
  }
}

}  // namespace

RecordReport ReportOf(const Record& record, const std::string& file) {
  RecordReport report;
  report.file = file;
  report.what = record.source == record::Source::kMalloc    ? "record of malloc"
                : record.source == record::Source::kForeign ? "record of another tool"
                                                            : "record of arrays";
  if (!record.ended) {
    report.remark =
        record.damage.empty()
            ? absl::StrCat("it ends without an end: its program was killed, or records still; ",
                           record.bytes_behind, " bytes of a block that is not whole are left out")
            : absl::StrCat("it is damaged, ", record.damage, "; the last ", record.bytes_behind,
                           " bytes are left out");
  }
  const RecordedBlocks matched = MatchBlocks(record);
  report.threads = record.threads;
  report.unknown_frees = static_cast<int64_t>(matched.unknown_frees);
  Counts counts(record);
  for (const RecordEvent& event : record.live) {
    counts.ForEach(event, event.block != 0,
                   [&](Counted& part) { part.Add(static_cast<int64_t>(event.bytes)); });
  }
  const auto keep_peak = [&] {
    counts.ForAll([](Counted& part) { part.part.at_peak_bytes = part.now; });
  };
  keep_peak();                                     // where nothing more comes
  std::map<uint32_t, std::vector<uint32_t>> ends;  // of blocks whose release is missing
  for (uint32_t i = 0; i < matched.blocks.size(); ++i) {
    if (matched.blocks[i].end_is_guessed) ends[matched.blocks[i].freed].push_back(i);
  }
  const auto release = [&](uint32_t block) {
    const RecordEvent& made = record.events[matched.blocks[block].made];
    counts.ForEach(made, true, [&](Counted& part) { part.Add(-static_cast<int64_t>(made.bytes)); });
  };
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    const RecordEvent& event = record.events[i];
    if (const auto ended = ends.find(i); ended != ends.end()) {
      for (const uint32_t block : ended->second) release(block);
    }
    if (event.what == What::kAllocate) {
      counts.ForEach(event, true,
                     [&](Counted& part) { part.Request(static_cast<int64_t>(event.bytes)); });
      if (i == matched.live_bound_at && matched.live_bound > matched.from_before) keep_peak();
    } else if (event.what == What::kFree && matched.block_of[i] != RecordedBlock::kNever) {
      release(matched.block_of[i]);
    } else if (event.what == What::kCycleBegin) {
      ++report.cycles;
    }
  }
  counts.Tell(report);
  AddLifetimes(record, matched, report);
  return report;
}

}  // namespace tidepool
