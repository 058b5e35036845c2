// Reports of records and of the ledger's JSON, and what is between two.
#include "tidepool/memory/recording/record_report.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_timeline.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool {
namespace {

using testing::HasSubstr;
using What = RecordEvent::What;

// The report of a drawn record beside a model that looks at all blocks at every event.
TEST(RecordReport, IsWhatAModelCounts) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Record record;
    record.threads = 1;
    const std::vector<uint32_t> owners = {0, record.Name("a"), record.Name("b #tag")};
    uint64_t number = 0;
    if (seed % 3 == 0)
      record.live.push_back({.number = ++number, .bytes = 5000, .owner = owners[1]});
    std::map<uint64_t, RecordEvent> alive;
    std::map<std::string, int64_t> at_peak, highest;
    int64_t most = -1;
    const auto look = [&] {
      std::map<std::string, int64_t> now;
      int64_t all = 0;
      for (const RecordEvent& event : record.live) {
        now[record.names[event.owner]] += static_cast<int64_t>(event.bytes);
        all += static_cast<int64_t>(event.bytes);
      }
      for (const auto& [key, event] : alive) {
        now[record.names[event.owner]] += static_cast<int64_t>(event.bytes);
        all += static_cast<int64_t>(event.bytes);
      }
      for (const auto& [owner, bytes] : now) highest[owner] = std::max(highest[owner], bytes);
      if (all > most) {
        most = all;
        at_peak = now;
      }
      return now;
    };
    look();
    for (int i = 0; i < 300; ++i) {
      const uint64_t key = 1 + random() % 20;
      if (alive.count(key) > 0 && random() % 8 > 0) {
        record.events.push_back({.what = What::kFree, .number = ++number, .block = key});
        alive.erase(key);
      } else {
        // Sometimes one whose key was not released: the release is missing.
        record.events.push_back({.number = ++number,
                                 .block = key,
                                 .bytes = random() % 3000,
                                 .owner = owners[random() % owners.size()]});
        alive[key] = record.events.back();
      }
      look();
    }
    const RecordReport report = ReportOf(record, "case");
    EXPECT_EQ(report.all.peak_bytes, most);
    EXPECT_EQ(report.all.at_peak_bytes, most);
    const std::map<std::string, int64_t> end = look();
    for (const auto& [owner, part] : report.owners) {
      const auto of = [&owner = owner](const std::map<std::string, int64_t>& map) {
        return map.count(owner) > 0 ? map.at(owner) : 0;
      };
      EXPECT_EQ(part.at_peak_bytes, of(at_peak)) << owner;
      EXPECT_EQ(part.peak_bytes, of(highest)) << owner;
      EXPECT_EQ(part.at_end_bytes, of(end)) << owner;
    }
    const std::vector<uint64_t> live = LiveBytes(record, MatchBlocks(record));
    EXPECT_EQ(static_cast<int64_t>(*std::max_element(live.begin(), live.end())), most);
    int64_t blocks = 0;
    for (const RecordReport::Lifetime& line : report.lifetimes) blocks += line.blocks;
    EXPECT_EQ(blocks, report.all.requests);
    EXPECT_THAT(DifferenceToString(report, report, 10), HasSubstr("no difference"));
  }
}

TEST(RecordReport, HasTheDifferenceOfTwo) {
  const auto make = [](int count, uint64_t bytes) {
    Record record;
    record.threads = 1;
    const uint32_t owner = record.Name("loader");
    for (int i = 0; i < count; ++i) {
      record.events.push_back({.number = static_cast<uint64_t>(i + 1),
                               .block = static_cast<uint64_t>(i + 1),
                               .bytes = bytes,
                               .owner = owner});
    }
    return record;
  };
  const RecordReport before = ReportOf(make(3, 1000), "one"),
                     after = ReportOf(make(5, 2000), "two");
  const std::string text = DifferenceToString(before, after, 10);
  EXPECT_THAT(text, HasSubstr("at most 3000 B, then 10000 B: +7000 B"));
  EXPECT_THAT(text, testing::ContainsRegex("loader +3000 B +\\+7000 B +\\+7000 B +\\+2"));
  EXPECT_THAT(text, testing::ContainsRegex("1000 +3000 B +-3000 B +-3000 B +-3"));
}

TEST(RecordReport, ReadsWhatTheLedgerWrites) {
  MemoryOwnerScope owner("report test");
  MemoryTimeline timeline({.granularity_bytes = 1});
  BufferHandle buffer(NewHeapBuffer(123456));
  const std::string path = testing::TempDir() + "/memory.json";
  std::ofstream(path) << "\n" << MemoryTracker::Global().Snapshot().ToJson();
  const RecordReport report = ReadReport(path);
  EXPECT_EQ(report.what, "memory snapshot");
  EXPECT_EQ(report.owners.at("report test").at_end_bytes, 123456);
  EXPECT_GE(report.kinds.at("allocated").at_end_bytes, 123456);
  EXPECT_GE(report.all.peak_bytes, 123456);
  std::ofstream(path) << timeline.ToJson();
  EXPECT_EQ(ReadReport(path).what, "memory timeline");
  EXPECT_GE(ReadReport(path).devices.at("host").peak_bytes, 123456);
}

// Tiers are in neither report: files with them, and older ones without, are read alike.
TEST(RecordReport, ReadsTheLedgersFilesWithTiersAndWithout) {
  MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  snapshot.spill_tiers = {{.device = Host(), .waiting_bytes = 5, .counters = {.came = 1}}};
  const std::string with = snapshot.ToJson();
  auto json = nlohmann::json::parse(with);
  ASSERT_EQ(json.erase("spill_tiers"), 1u);
  EXPECT_EQ(ReportOfJson(with, "file").ToString(9), ReportOfJson(json.dump(), "file").ToString(9));

  internal::CountSpillTier(Host(), {.came = 1, .came_bytes = 5});
  MemoryTimeline timeline({.granularity_bytes = 1});
  timeline.Stop();
  const std::string samples = timeline.ToJson();
  json = nlohmann::json::parse(samples);
  EXPECT_EQ(json["tier_samples"][0]["came_bytes"], 5);
  ASSERT_EQ(json.erase("tier_samples") + json.erase("dropped_tier_samples"), 2u);
  EXPECT_EQ(ReportOfJson(samples, "file").ToString(9),
            ReportOfJson(json.dump(), "file").ToString(9));
}

TEST(RecordReport, SaysWhatItCannotRead) {
  const auto message = [](const std::string& text) {
    const absl::Status status = CatchStatus([&] { ReportOfJson(text, "memory.json"); });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(message("{"), HasSubstr("memory.json: offset 2: found no JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("expected what MemorySnapshot::ToJson()"));
  EXPECT_THAT(message("{\"samples\": [{}]}"), HasSubstr("found no sample.device"));
  EXPECT_THAT(message("{\"owners\": [], \"devices\": [{\"device\": 3}]}"),
              HasSubstr("expected a text"));
  const std::string path = testing::TempDir() + "/none";
  std::ofstream(path) << "tidepool recorx";
  EXPECT_THAT(std::string(CatchStatus([&] { ReadReport(path); }).message()),
              testing::AllOf(HasSubstr(path), HasSubstr("expected a header of 48 bytes")));
}

}  // namespace
}  // namespace tidepool
