// Records: files of programs that may have been killed, and of strangers.
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/advice.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/record_report.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/recording/recorded_cycles.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace tidepool {
namespace {

using record::BlockHeader;
using record::FileHeader;

std::vector<std::string> Records() {
  std::vector<std::string> all;
  for (const int count : {0, 1, 20, 300}) {
    Record record;
    const uint32_t owner = record.Name("owner"), device = record.Name("cuda:0");
    uint64_t number = 5;
    if (count > 1) record.live.push_back({.number = ++number, .bytes = 4096, .owner = owner});
    for (int i = 0; i < count; ++i) {
      RecordEvent event = {.thread = static_cast<uint32_t>(i % 3),
                           .number = ++number,
                           .nanoseconds = i / 7 * int64_t{1000000}};
      if (i % 10 == 0) {
        event.what = RecordEvent::What::kCycleBegin;
        event.owner = owner;
      } else if (i % 10 == 9) {
        event.what = RecordEvent::What::kCycleEnd;
        event.owner = owner;
      } else if (i % 2 == 1) {
        event.block = 0x7f00 + static_cast<uint64_t>(i) * 64;
        event.bytes = static_cast<uint64_t>(i) * 100;
        event.owner = i % 3 == 0 ? owner : 0;
        event.device = i % 5 == 0 ? device : 0;
        event.alignment_log2 = static_cast<uint8_t>(i % 30);
      } else {
        event.what = RecordEvent::What::kFree;
        event.block = 0x7f00 + static_cast<uint64_t>(i - 1) * 64;
      }
      record.events.push_back(event);
    }
    all.push_back(FormatRecord(record));
    if (count == 20) all.push_back(all.back().substr(0, all.back().size() - 50));
  }
  return all;
}

// Calls `visit` with the place of each block that is whole.
template <typename Visit>
void ForEachBlock(std::string& bytes, const Visit& visit) {
  for (size_t at = sizeof(FileHeader); at + sizeof(BlockHeader) <= bytes.size();) {
    BlockHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    if (header.payload_bytes > bytes.size() - at - sizeof(header)) return;
    visit(at, header);
    at += sizeof(header) + header.payload_bytes;
  }
}

// A field of a header, a byte of a payload, a block twice.
void MutateRecord(ByteMutator& mutator, std::string& bytes) {
  std::vector<size_t> blocks;
  ForEachBlock(bytes, [&](size_t at, const BlockHeader&) { blocks.push_back(at); });
  if (blocks.empty()) return;
  const size_t at = blocks[mutator.Below(blocks.size())];
  BlockHeader header;
  std::memcpy(&header, bytes.data() + at, sizeof(header));
  switch (mutator.Below(5)) {
    case 0:
      header.type = static_cast<uint32_t>(mutator.Below(6));
      break;
    case 1:
      header.thread = static_cast<uint32_t>(mutator.Number(1 << 21));
      break;
    case 2:
      header.first_number = mutator.Number(UINT64_MAX);
      break;
    case 3:
      bytes.insert(at, bytes.substr(at, sizeof(header) + header.payload_bytes));
      return;
    default:
      if (header.payload_bytes == 0) return;
      bytes[at + sizeof(header) + mutator.Below(header.payload_bytes)] =
          static_cast<char>(mutator.Below(256));
      return;
  }
  std::memcpy(bytes.data() + at, &header, sizeof(header));
}

void RepairRecord(std::string& bytes) {
  if (bytes.size() < sizeof(FileHeader)) return;
  const uint32_t crc = record::Crc32(0, bytes.data(), offsetof(FileHeader, checksum));
  std::memcpy(bytes.data() + offsetof(FileHeader, checksum), &crc, sizeof(crc));
  ForEachBlock(bytes, [&](size_t at, const BlockHeader& header) {
    const uint32_t sum =
        record::Crc32(record::Crc32(0, bytes.data() + at, offsetof(BlockHeader, checksum)),
                      bytes.data() + at + sizeof(header), header.payload_bytes);
    std::memcpy(bytes.data() + at + offsetof(BlockHeader, checksum), &sum, sizeof(sum));
  });
}

void ReadIt(const std::string& bytes) {
  bool file_was_read = false;
  try {
    ReadRecord(FuzzFile(bytes));
    file_was_read = true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
  }
  Record record;
  try {
    record = ParseRecord(bytes, "case");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("case: offset "), 0u) << error.message();
    EXPECT_FALSE(file_was_read);
    throw;
  }
  EXPECT_TRUE(file_was_read);
  ASSERT_EQ(record.bytes_read + record.bytes_behind, bytes.size());
  for (const RecordEvent& event : record.events) {
    ASSERT_LT(event.thread, record.threads);
    ASSERT_LT(event.owner, record.names.size());
    ASSERT_LT(event.device, record.names.size());
  }
}

TIDEPOOL_FUZZ_TARGET(RecordFile, {.corpus = &Records,
                                  .mutate = &MutateRecord,
                                  .repair = &RepairRecord,
                                  .run = &ReadIt,
                                  .constant_bytes = size_t{4} << 20});

// What is done with whatever was read: nothing of it may be believed by who computes with it.
void UseIt(const std::string& bytes) {
  const Record record = ParseRecord(bytes, "case");
  const RecordedBlocks matched = MatchBlocks(record);
  const RecordedCycles cycles = FindCycles(record, matched);
  for (const RecordedCycle& cycle : cycles.cycles) {
    ASSERT_LT(cycle.begin, cycle.end);
    ASSERT_LE(cycle.end, record.events.size());
  }
  EXPECT_FALSE(Advise(record).ToString().empty());
  EXPECT_FALSE(ReportOf(record, "case").ToString(3).empty());
}

// 4 MiB: plans of a cycle, and tables of what was counted.
TIDEPOOL_FUZZ_TARGET(RecordUse, {.corpus = &Records,
                                 .mutate = &MutateRecord,
                                 .repair = &RepairRecord,
                                 .run = &UseIt,
                                 .constant_bytes = size_t{4} << 20});

std::vector<std::string> Reports() {
  std::string usage = R"({"current_bytes": 5, "peak_bytes": 100})";
  const std::string parts = R"("total": )" + usage + R"(, "kinds": {"allocated": )" + usage + "}";
  return {
      R"({"owners": [{"device": "host", "owner": "a/b", "tag": "t", "own_bytes": 3, )" + parts +
          R"(}], "devices": [{"device": "host", )" + parts + "}]}",
      R"({"samples": [{"nanoseconds": 1, "device": "host", "allocated": 7, "external": 0, "unreferenced": 1,
              "workspace": 0, "gradient standard": 0, "gradient external": 0, "gradient deferred": 0,
              "in_use_highest": 9}], "dropped": 0})",
      R"({"owners": [], "devices": []})"};
}

void ReadReportOf(const std::string& bytes) {
  try {
    const RecordReport report = ReportOfJson(bytes, "case");
    EXPECT_FALSE(report.ToString(5).empty());
    EXPECT_FALSE(DifferenceToString(report, report, 5).empty());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("case: offset "), 0u) << error.message();
    throw;
  }
}

TIDEPOOL_FUZZ_TARGET(ReportJson, {.corpus = &Reports, .run = &ReadReportOf});

}  // namespace
}  // namespace tidepool
