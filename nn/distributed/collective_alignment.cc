#include "tidepool/nn/distributed/collective_alignment.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tidepool::nn {
namespace {

using Log = std::vector<CollectiveRecord>;

const CollectiveRecord* Find(const Log& log, int64_t sequence) {
  const auto at = std::find_if(log.begin(), log.end(),
                               [&](const CollectiveRecord& r) { return r.sequence == sequence; });
  return at != log.end() ? &*at : nullptr;
}

// "0, 1 and 5", or as many as can be read.
std::string RanksText(const std::vector<size_t>& ranks) {
  constexpr size_t kMost = 8;
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  if (ranks.size() > kMost) {
    return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + kMost, ", "),
                        " and ", ranks.size() - kMost, " more");
  }
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ",
                      ranks.back());
}

}  // namespace

std::string FirstDifference(absl::Span<const std::optional<Log>> logs) {
  int64_t first = 0, last = 0;
  for (const auto& log : logs) {
    if (!log.has_value() || log->empty()) continue;
    // What the shortest memory of them all has.
    first = std::max(first, log->front().sequence);
    last = std::max(last, log->back().sequence);
  }
  for (int64_t sequence = std::max<int64_t>(first, 1); sequence <= last; ++sequence) {
    // Ranks by what they did.
    std::vector<std::pair<std::string, std::vector<size_t>>> groups;
    for (size_t rank = 0; rank < logs.size(); ++rank) {
      if (!logs[rank].has_value()) continue;
      const CollectiveRecord* const record = Find(*logs[rank], sequence);
      // One that is behind the others may have forgotten nothing: it has not come so far.
      std::string did = record == nullptr ? "not begun" : record->ToString();
      const auto group =
          std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == did; });
      (group != groups.end() ? *group : groups.emplace_back(std::move(did), std::vector<size_t>()))
          .second.push_back(rank);
    }
    if (groups.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [did, ranks] : groups)
      parts.push_back(absl::StrCat(RanksText(ranks), ": ", did));
    return absl::StrCat("the ranks differ first at collective ", sequence, ": ",
                        absl::StrJoin(parts, "; "));
  }
  return "";
}

std::string LastOfAll(absl::Span<const std::optional<Log>> logs, absl::Span<const int64_t> done) {
  const CollectiveRecord* last = nullptr;
  for (size_t rank = 0; rank < logs.size(); ++rank) {
    if (!logs[rank].has_value()) continue;
    for (const CollectiveRecord& record : *logs[rank]) {
      // A root's broadcast is done when it has sent; of no elements nothing is sent.
      const bool needs_all = record.kind == CollectiveKind::kBarrier ||
                             (record.kind != CollectiveKind::kBroadcast && record.count > 0);
      if (!needs_all || record.sequence > done[rank]) continue;
      if (last == nullptr || record.sequence > last->sequence) last = &record;
    }
  }
  if (last == nullptr) return "";
  return absl::StrCat("all had come to collective ", last->sequence, " at step ", last->step);
}

std::string FormatLog(absl::Span<const CollectiveRecord> log) {
  std::string text;
  for (const CollectiveRecord& r : log) {
    absl::StrAppend(&text, r.sequence, "\t", r.step, "\t", r.count, "\t", static_cast<int>(r.kind),
                    "\t", static_cast<int>(r.type), "\t", r.site, "\n");
  }
  return text;
}

Log ParseLog(absl::string_view text) {
  constexpr size_t kMostSite = 100;
  Log log;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
    CollectiveRecord r;
    int kind = 0, type = 0;
    if (fields.size() != 6 || !absl::SimpleAtoi(fields[0], &r.sequence) ||
        !absl::SimpleAtoi(fields[1], &r.step) || !absl::SimpleAtoi(fields[2], &r.count) ||
        !absl::SimpleAtoi(fields[3], &kind) || !absl::SimpleAtoi(fields[4], &type) || kind < 0 ||
        kind >= kCollectiveKinds || type < 0 || type > static_cast<int>(ElementType::kFloat64)) {
      continue;
    }
    r.kind = static_cast<CollectiveKind>(kind);
    r.type = static_cast<ElementType>(type);
    for (const char c : fields[5].substr(0, kMostSite))
      r.site.push_back(c >= ' ' && c < 127 ? c : '?');
    log.push_back(std::move(r));
  }
  return log;
}

}  // namespace tidepool::nn
