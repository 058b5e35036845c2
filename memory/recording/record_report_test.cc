// Reports of records and of the ledger's JSON, and what is between two.
#include "tidepool/memory/recording/record_report.h"

#include <cstdint>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_timeline.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/spill/spill_counters.h"
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

// Files from before tiers, or spill files, were told have none.
TEST(RecordReport, WhatWaitsInSpillFilesAndTiers) {
  MemorySnapshot snapshot;
  snapshot.spilled = {.used_bytes = 300, .peak_bytes = 4000};
  snapshot.spill_tiers = {
      {.device = Host(), .waiting_bytes = 5, .peak_bytes = 700},
      {.device = {DeviceType::Named("simulated"), 1}, .counters = {.passed_by = 1}}};
  auto json = nlohmann::json::parse(snapshot.ToJson());
  const RecordReport report = ReportOfJson(json.dump(), "file");
  ASSERT_EQ(report.waiting.size(), 2u);
  EXPECT_EQ(report.waiting.at("file").at_end_bytes, 300);
  EXPECT_EQ(report.waiting.at("file").peak_bytes, 4000);
  EXPECT_EQ(report.waiting.at("host").at_end_bytes, 5);
  EXPECT_EQ(report.all.peak_bytes,
            0);  // those of the host are on its ledger, and a file is no memory
  EXPECT_THAT(report.ToString(9), testing::ContainsRegex("waiting in .*\nfile +4000 B"));
  json.erase("spill_tiers");
  const RecordReport older = ReportOfJson(json.dump(), "file");
  EXPECT_EQ(older.waiting.size(), 1u);
  EXPECT_THAT(DifferenceToString(older, report, 9),
              testing::ContainsRegex("waiting in .*\nhost +0 B +\\+700 B +\\+5 B"));
  JsonWriter of_both;
  of_both.BeginObject();
  AddDifferenceTo(of_both, older, report, 9);
  of_both.EndObject();
  const auto changes = nlohmann::json::parse(std::move(of_both).Take());
  EXPECT_EQ(changes["waiting"][0]["name"], "host");
  EXPECT_EQ(changes["waiting"][0]["at_peak_bytes"], 700);
  json.erase("spilled");
  EXPECT_TRUE(ReportOfJson(json.dump(), "file").waiting.empty());
  json["spill_tiers"] = {{{"tier", "host"}}};
  EXPECT_THAT(std::string(CatchStatus([&] { ReportOfJson(json.dump(), "file"); }).message()),
              HasSubstr("found no spill tier.waiting_bytes"));
}

TEST(RecordReport, WhatWaitedInTheCourseOfATimeline) {
  MemoryTimeline timeline({.granularity_bytes = 1});
  const auto change = [] {
    MemoryTracker::Global().Add(Host(), MemoryKind::kExternal, 1);
    MemoryTracker::Global().Add(Host(), MemoryKind::kExternal, -1);
  };
  internal::CountSpillTier(Host(), {.came = 1, .came_bytes = 70});
  internal::CountSpillUse(30);
  {
    const internal::WaitingInTier waits(Host(), 70);
    change();
  }
  internal::CountSpillUse(-10);
  change();
  timeline.Stop();
  auto json = nlohmann::json::parse(timeline.ToJson());
  const RecordReport report = ReportOfJson(json.dump(), "file");
  EXPECT_EQ(report.waiting.at("host").peak_bytes, 70);
  EXPECT_EQ(report.waiting.at("host").at_end_bytes, 0);
  EXPECT_EQ(report.waiting.at("file").peak_bytes, 30);
  EXPECT_EQ(report.waiting.at("file").at_end_bytes, 20);
  internal::CountSpillUse(-20);
  json.erase("tier_samples");
  EXPECT_EQ(ReportOfJson(json.dump(), "file").waiting.size(), 1u);
  for (auto& sample : json["samples"]) sample.erase("spilled");
  EXPECT_TRUE(ReportOfJson(json.dump(), "file").waiting.empty());
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
