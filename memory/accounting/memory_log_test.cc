#include "tidepool/memory/accounting/memory_log.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kBlock = size_t{8} << 20;

const MemoryLog::Row& HostRow(const MemoryLog::Entry& entry) { return entry.rows.at(0); }

// Allocated beyond what was there when the log was made: other code of the process may hold some.
TEST(MemoryLogTest, DjlCase128SamplesWhatThereIsAndThePeakBetween) {
  MemoryLog log;
  log.Sample("begin");
  {
    BufferHandle kept(NewHeapBuffer(kBlock));
    std::memset(kept->data, 1, kBlock);
    { BufferHandle gone(NewHeapBuffer(2 * kBlock)); }
    log.Sample("first");
    log.Sample("second");
  }
  log.Sample("end");
  const std::vector<MemoryLog::Entry> entries = log.entries();
  ASSERT_EQ(entries.size(), 4u);
  const int64_t block = static_cast<int64_t>(kBlock);
  const int64_t before = HostRow(entries[0]).total;
  EXPECT_EQ(HostRow(entries[1]).total - before, block);
  EXPECT_EQ(HostRow(entries[1]).bytes[static_cast<int>(MemoryKind::kAllocated)] -
                HostRow(entries[0]).bytes[static_cast<int>(MemoryKind::kAllocated)],
            block);
  EXPECT_EQ(HostRow(entries[1]).peak - before, 3 * block);
  EXPECT_EQ(HostRow(entries[2]).peak - before, block);
  EXPECT_EQ(HostRow(entries[3]).total, before);
  EXPECT_EQ(HostRow(entries[3]).peak - before, block);
  EXPECT_GT(entries[1].resident_bytes, block);
  EXPECT_LE(entries[0].seconds, entries[3].seconds);
}

TEST(MemoryLogTest, OwnersHaveRowsOfTheirOwnOnceTheLedgerKnowsThem) {
  MemoryLog log({.owners = {"memory log test"}});
  log.Sample("before");
  MemoryOwner& owner = MemoryOwner::Process().Child("memory log test");
  {
    const MemoryOwnerScope scope(owner);
    BufferHandle buffer(NewHeapBuffer(4096));
    log.Sample("with, \"quotes\"");
  }
  const std::vector<MemoryLog::Entry> entries = log.entries();
  EXPECT_EQ(entries[0].rows.size(), 1u);
  ASSERT_EQ(entries[1].rows.size(), 2u);
  EXPECT_EQ(entries[1].rows[1].owner, "memory log test");
  EXPECT_GE(entries[1].rows[1].total, 4096);
  const std::string csv = log.ToCsv();
  EXPECT_THAT(csv, StartsWith("label,seconds,resident_bytes,device,owner,allocated,external,"
                              "unreferenced,workspace,gradient_standard,gradient_external,"
                              "gradient_deferred,total,peak\nbefore,"));
  EXPECT_THAT(csv, HasSubstr("\n\"with, \"\"quotes\"\"\","));
  EXPECT_THAT(csv, HasSubstr(",host,memory log test,"));
}

TEST(MemoryLogTest, TheOldestSamplesMakeRoom) {
  MemoryLog log({.capacity = 3});
  for (int i = 0; i < 8; ++i) log.Sample(std::to_string(i));
  const std::vector<MemoryLog::Entry> entries = log.entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].label, "5");
  EXPECT_EQ(entries[2].label, "7");
  EXPECT_EQ(log.dropped(), 5);
  EXPECT_THROW(MemoryLog({.capacity = 0}), Error);
}

TEST(MemoryLogTest, TheFileIsWholeOrNotThere) {
  MemoryLog log;
  log.Sample("only");
  const std::string path = testing::TempDir() + "/memory.csv";
  log.WriteCsv(path);
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), log.ToCsv());
  try {
    log.WriteCsv(testing::TempDir() + "/nowhere/memory.csv");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("nowhere"));
  }
}

}  // namespace
}  // namespace tidepool
