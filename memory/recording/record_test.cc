// Records as files: what is written is read, what is cut is read up to there, what is damaged is told.
#include "tidepool/memory/recording/record.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using testing::HasSubstr;
using What = RecordEvent::What;

// Events of `threads` threads as a program could have made them, their numbers with gaps.
Record Drawn(uint64_t seed, int count, uint32_t threads) {
  std::mt19937_64 random(seed);
  Record record;
  record.process = random();
  record.began = static_cast<int64_t>(random() >> 1);
  record.source = record::Source::kForeign;
  std::vector<uint32_t> owners = {0}, devices = {0};
  for (int i = 0; i < 5; ++i)
    owners.push_back(record.Name("owner " + std::to_string(i) + " \xc3\xa9"));
  devices.push_back(record.Name("cuda:1"));
  uint64_t number = random() % 3 == 0 ? 0 : random() % 100;
  int64_t time = 0;
  const auto draw = [&](What what) {
    RecordEvent event;
    event.what = what;
    event.number = number += 1 + (random() % 8 == 0 ? random() % 100000 : 0);
    event.nanoseconds = time += random() % 4 == 0 ? static_cast<int64_t>(random() % 5000000) : 0;
    event.thread = static_cast<uint32_t>(random() % threads);
    if (what == What::kAllocate || what == What::kFree) {
      event.block = random() % 2 == 0 ? random() : 0x7f0000000000 + random() % 100000 * 16;
    }
    if (what == What::kAllocate) {
      event.bytes = random() % 3 == 0 ? random() >> 24 : random() % 4096;
      event.alignment_log2 = static_cast<uint8_t>(random() % 40);
      event.kind = static_cast<MemoryKind>(random() % 4 == 0 ? random() % kMemoryKinds : 0);
      event.owner = owners[random() % 4 == 0 ? random() % owners.size() : 1];
      event.device = devices[random() % 8 == 0];
    }
    if (what == What::kCycleBegin || what == What::kCycleEnd) {
      event.owner = owners[random() % owners.size()];
      event.bytes = random() % 1000;
    }
    return event;
  };
  for (int i = 0; i < 3; ++i) {
    record.live.push_back(draw(What::kAllocate));
    record.live.back().thread = 0;
  }
  for (int i = 0; i < count; ++i) {
    const int what = static_cast<int>(random() % 10);
    record.events.push_back(draw(what < 5   ? What::kAllocate
                                 : what < 8 ? What::kFree
                                 : what < 9 ? What::kCycleBegin
                                            : What::kCycleEnd));
  }
  return record;
}

// Names have other indices in what was read.
std::vector<std::string> Lines(const Record& record, const std::vector<RecordEvent>& events) {
  std::vector<std::string> lines;
  for (const RecordEvent& e : events) {
    lines.push_back(
        testing::PrintToString(std::vector<uint64_t>{
            e.number, static_cast<uint64_t>(e.nanoseconds), e.thread, static_cast<uint64_t>(e.what),
            e.block, e.bytes, e.alignment_log2, static_cast<uint64_t>(e.kind)}) +
        record.names[e.owner] + "|" + record.names[e.device]);
  }
  return lines;
}

TEST(Record, IsReadAsItWasWritten) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Record record = Drawn(seed, seed == 1 ? 40000 : static_cast<int>(seed * 37), 1 + seed % 5);
    const std::vector<std::string> events = Lines(record, record.events);
    std::shuffle(record.events.begin(), record.events.end(), std::mt19937_64(seed));
    const Record read = ParseRecord(FormatRecord(record), "case");
    EXPECT_EQ(read.process, record.process);
    EXPECT_EQ(read.began, record.began);
    EXPECT_EQ(read.source, record.source);
    EXPECT_TRUE(read.ended);
    EXPECT_EQ(read.bytes_behind, 0u);
    EXPECT_EQ(Lines(read, read.live), Lines(record, record.live));
    ASSERT_EQ(Lines(read, read.events), events);
    // And as a file.
    const std::string path = testing::TempDir() + "/record";
    WriteRecord(path, record);
    EXPECT_EQ(Lines(read, ReadRecord(path).events), events);
  }
}

TEST(Record, IsReadUpToItsLastWholeBlockWhereverItIsCut) {
  const Record record = Drawn(3, 60, 2);
  const std::string bytes = FormatRecord(record);
  ASSERT_LT(bytes.size(), 3000u);
  size_t events = 0;
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    SCOPED_TRACE(cut);
    if (cut < sizeof(record::FileHeader)) {
      EXPECT_THAT(
          std::string(CatchStatus([&] { ParseRecord(bytes.substr(0, cut), "case"); }).message()),
          HasSubstr("case: offset " + std::to_string(cut) +
                    ": found the end of the file, expected a header of 48 bytes"));
      continue;
    }
    const Record read = ParseRecord(bytes.substr(0, cut), "case");
    EXPECT_FALSE(read.ended);
    EXPECT_EQ(read.bytes_read + read.bytes_behind, cut);
    EXPECT_GE(read.events.size(), events);
    events = read.events.size();
    const std::vector<std::string> all = Lines(record, record.events);
    for (const std::string& line : Lines(read, read.events)) {
      EXPECT_NE(std::find(all.begin(), all.end(), line), all.end());
    }
  }
  EXPECT_EQ(events, record.events.size());
}

TEST(Record, TellsOfEveryByteThatIsDamaged) {
  const Record record = Drawn(4, 60, 2);
  const std::string bytes = FormatRecord(record);
  const std::vector<std::string> all = Lines(record, record.events);
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      SCOPED_TRACE(at);
      try {
        const Record read = ParseRecord(damaged, "case");
        EXPECT_GE(at, sizeof(record::FileHeader));
        EXPECT_FALSE(read.ended);
        EXPECT_GT(read.bytes_behind, 0u);
        EXPECT_LE(read.bytes_read, at);
        EXPECT_EQ(read.bytes_read + read.bytes_behind, bytes.size());
        // A length that is beyond the end is as if the file were cut.
        if (!read.damage.empty()) {
          EXPECT_THAT(read.damage, testing::MatchesRegex("offset [0-9]+: found .*, expected .*"));
        }
        for (const std::string& line : Lines(read, read.events)) {
          EXPECT_NE(std::find(all.begin(), all.end(), line), all.end());
        }
      } catch (const Error& error) {
        EXPECT_LT(at, sizeof(record::FileHeader));
        EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(error.message(),
                    testing::MatchesRegex("case: offset [0-9]+: found .*, expected .*"));
      }
    }
  }
  EXPECT_THAT(std::string(CatchStatus([&] { ParseRecord(bytes + "x", "case"); }).message()),
              HasSubstr("more bytes behind the end"));
}

TEST(Record, IsReadUpToABlockThatIsDamaged) {
  Record record = Drawn(7, 200, 2);
  std::string bytes = FormatRecord(record);
  const std::string path = testing::TempDir() + "/damaged";
  // Within the second thread's block, the last before the end's.
  const size_t at = bytes.size() - sizeof(record::BlockHeader) - 10;
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes << std::string(3 << 20, 'x');
  const Record read = ReadRecord(path);
  EXPECT_FALSE(read.ended);
  EXPECT_THAT(read.damage, HasSubstr("found checksum"));
  EXPECT_EQ(read.bytes_read + read.bytes_behind, bytes.size() + (3 << 20));
  record.events.erase(std::remove_if(record.events.begin(), record.events.end(),
                                     [](const RecordEvent& event) { return event.thread == 1; }),
                      record.events.end());
  EXPECT_EQ(Lines(read, read.events), Lines(record, record.events));
}

TEST(Record, IsNoLargerThanItsReaderAllows) {
  const std::string path = testing::TempDir() + "/large";
  WriteRecord(path, Drawn(5, 100, 1));
  EXPECT_THAT(std::string(CatchStatus([&] { ReadRecord(path, 100); }).message()),
              HasSubstr("bytes, expected at most 100"));
  EXPECT_EQ(CatchStatus([&] { ReadRecord(path + ".not there"); }).code(),
            absl::StatusCode::kNotFound);
}

TEST(Record, IsNotWrittenWhereItCouldNotBeRead) {
  const auto refused = [](auto&& change) {
    Record record = Drawn(6, 10, 1);
    change(record);
    return std::string(CatchStatus([&] { FormatRecord(record); }).message());
  };
  EXPECT_THAT(refused([](Record& r) { r.events[1].number = r.events[0].number; }),
              HasSubstr("found another event of this number"));
  EXPECT_THAT(refused([](Record& r) { r.events[1].owner = 100; }), HasSubstr("found owner 100"));
  EXPECT_THAT(refused([](Record& r) { r.live[0].what = What::kFree; }), HasSubstr("a release"));
  EXPECT_THAT(refused([](Record& r) { r.names.push_back(std::string(5000, 'x')); }),
              HasSubstr("a name of 5000 bytes"));
}

}  // namespace
}  // namespace tidepool
