// Programs under libtidepool_record.so: they do what they do without it, and the record has it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/recording/recorded_cycles.h"

namespace tidepool {
namespace {

using What = RecordEvent::What;

std::string Absolute(const std::string& path) { return std::filesystem::absolute(path).string(); }

// Its status. Records go to `folder`/r and `folder`/r.<process>.
int RunRecorded(const std::string& folder, const std::string& command) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string line = "TIDEPOOL_RECORD=" + folder + "/r LD_PRELOAD=" +
                           Absolute("memory/recording/preload/libtidepool_record.so") + " " +
                           command + " > " + folder + "/out 2> " + folder + "/err";
  const int status = std::system(line.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string Program() { return Absolute("memory/recording/preload/malloc_program"); }
std::string Folder() { return testing::TempDir() + "/preload"; }

std::map<uint64_t, int> Sizes(const Record& record) {
  std::map<uint64_t, int> sizes;
  for (const RecordEvent& event : record.events) {
    if (event.what == What::kAllocate) ++sizes[event.bytes];
  }
  return sizes;
}

TEST(RecordMalloc, HasEveryWayToAsk) {
  for (const char* const end : {"exit", "_exit", "vfork"}) {
    SCOPED_TRACE(end);
    ASSERT_EQ(RunRecorded(Folder(), Program() + " " + end + " 100"), 0);
    const Record record = ReadRecord(Folder() + "/r");
    EXPECT_TRUE(record.ended);
    EXPECT_EQ(record.source, record::Source::kMalloc);
    std::map<uint64_t, int> sizes = Sizes(record);
    for (const uint64_t size :
         {100001, 100011, 200003, 300007, 100019, 102656, 100043, 100049, 100057, 100069, 130021}) {
      EXPECT_EQ(sizes[size], 1) << size;
    }
    EXPECT_EQ(sizes[110017], 100);
    EXPECT_EQ(sizes[130003], 0);  // the child's
    const RecordedBlocks matched = MatchBlocks(record);
    std::set<uint64_t> left;
    for (const RecordedBlock& block : matched.blocks) {
      EXPECT_FALSE(block.end_is_guessed);
      const RecordEvent& made = record.events[block.made];
      if (block.freed == RecordedBlock::kNever) left.insert(made.bytes);
      if (made.bytes == 100043) {
        EXPECT_EQ(made.alignment_log2, 12);
      }
      if (made.bytes == 102656) {
        EXPECT_EQ(made.alignment_log2, 8);
      }
      if (made.bytes == 100001) {
        EXPECT_EQ(made.alignment_log2, 4);
      }
    }
    EXPECT_EQ(left.count(100069), 1u);
    EXPECT_EQ(std::count_if(left.begin(), left.end(), [](uint64_t b) { return b > 100000; }), 1);
    EXPECT_EQ(matched.unknown_frees, 0u);
    // Four threads' blocks, each released by another.
    std::set<uint32_t> threads;
    for (int t = 0; t < 4; ++t) {
      EXPECT_EQ(sizes[120011 + 2 * t], 500);
      for (const RecordedBlock& block : matched.blocks) {
        if (record.events[block.made].bytes != static_cast<uint64_t>(120011 + 2 * t)) continue;
        EXPECT_NE(record.events[block.freed].thread, record.events[block.made].thread);
        threads.insert(record.events[block.made].thread);
      }
    }
    EXPECT_EQ(threads.size(), 4u);
  }
}

TEST(RecordMalloc, HasMarkedCycles) {
  ASSERT_EQ(RunRecorded(Folder(), Program() + " exit 100"), 0);
  const Record record = ReadRecord(Folder() + "/r");
  const RecordedCycles cycles = FindCycles(record, MatchBlocks(record));
  EXPECT_TRUE(cycles.by_marks);
  ASSERT_EQ(cycles.cycles.size(), 200u);
  EXPECT_EQ(record.names[cycles.cycles[0].name], "round");
  EXPECT_EQ(record.names[cycles.cycles[1].name], "inner");
  EXPECT_EQ(cycles.in_cycles, 200u);
  EXPECT_EQ(cycles.outliving, 0u);
}

TEST(RecordMalloc, OfAChildIsAFileOfItsOwn) {
  ASSERT_EQ(RunRecorded(Folder(), Program() + " exit 1"), 0);
  std::vector<std::string> others;
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("r.", 0) == 0) others.push_back(entry.path().string());
  }
  ASSERT_EQ(others.size(), 1u);
  const Record child = ReadRecord(others[0]);
  EXPECT_TRUE(child.ended);
  EXPECT_EQ(Folder() + "/r." + std::to_string(child.process), others[0]);
  EXPECT_EQ(Sizes(child)[130003], 1);
  EXPECT_EQ(Sizes(child)[100001], 0);
  EXPECT_EQ(MatchBlocks(child).unknown_frees, 1u);  // of what its parent had made
}

// Whole blocks are there, of a program that had no time to end.
TEST(RecordMalloc, IsReadUpToTheLastBlockOfAProgramThatWasKilled) {
  ASSERT_EQ(RunRecorded(Folder(), Program() + " kill 20000"), 128 + 9);
  const Record record = ReadRecord(Folder() + "/r");
  EXPECT_FALSE(record.ended);
  EXPECT_GT(Sizes(record)[110017], 10000);
  EXPECT_EQ(Sizes(record)[300007], 1);
}

TEST(RecordMalloc, LeavesProgramsAsTheyAre) {
  const std::vector<std::string> commands = {
      "ls -l /usr", "sort --parallel=2 /etc/passwd",
      "/bin/sh -c 'ls | wc -l; exec sort /etc/group'",
      "python3 -c 'import threading\n"
      "def work():\n    return [str(i) * 40 for i in range(20000)]\n"
      "threads = [threading.Thread(target=work) for _ in range(4)]\n"
      "[t.start() for t in threads]; [t.join() for t in threads]; print(len(work()))'"};
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    const std::string plain = testing::TempDir() + "/plain";
    ASSERT_EQ(std::system((command + " > " + plain).c_str()), 0);
    ASSERT_EQ(RunRecorded(Folder(), command), 0);
    EXPECT_EQ(std::system(("cmp " + plain + " " + Folder() + "/out").c_str()), 0);
    EXPECT_EQ(std::filesystem::file_size(Folder() + "/err"), 0u);
    size_t events = 0;
    for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
      if (entry.path().filename().string()[0] != 'r') continue;
      const Record record = ReadRecord(entry.path().string());
      EXPECT_TRUE(record.ended) << entry.path();
      EXPECT_EQ(std::count_if(record.events.begin(), record.events.end(),
                              [](const RecordEvent& e) { return e.bytes >= record::kMostBytes; }),
                0);
      events += record.events.size();
      const RecordedBlocks matched = MatchBlocks(record);
      for (const RecordedBlock& block : matched.blocks) EXPECT_FALSE(block.end_is_guessed);
    }
    EXPECT_GT(events, 10u);
  }
}

// unusual_program.cc. Its status; the time is for the one that would wait for itself.
int RunUnusual(const std::string& what) {
  return RunRecorded(Folder(), "timeout 60 " +
                                   Absolute("memory/recording/preload/unusual_program") + " " +
                                   what + " " + Folder() + "/own 3>&-");
}

// That of the program itself: `timeout` writes one, too.
Record UnusualRecord() {
  for (const auto& entry : std::filesystem::directory_iterator(Folder())) {
    if (entry.path().filename().string()[0] != 'r') continue;
    const Record record = ReadRecord(entry.path().string());
    std::map<uint64_t, int> sizes = Sizes(record);
    if (sizes[110017] + sizes[130021] > 0) return record;
  }
  ADD_FAILURE() << "no record of it";
  return {};
}

TEST(RecordMalloc, StaysOutOfTheProgramsOwnFiles) {
  for (const char* const what : {"closes", "closes_range", "replaces"}) {
    SCOPED_TRACE(what);
    ASSERT_EQ(RunUnusual(what), 0);  // it looks at its file
    const Record record = UnusualRecord();
    EXPECT_TRUE(record.ended);
    EXPECT_EQ(Sizes(record)[110017], 80000);
  }
}

TEST(RecordMalloc, IsEndedByAHandlerThatEndsTheProgramWhileItIsWritten) {
  ASSERT_EQ(RunUnusual("exits"), 7);
  const Record record = UnusualRecord();
  EXPECT_TRUE(record.ended);
  EXPECT_GT(Sizes(record)[110017], 5000);
}

TEST(RecordMalloc, CancelsNoThreadThatAsksForMemory) {
  ASSERT_EQ(RunUnusual("cancels"), 0);
  const Record record = UnusualRecord();
  EXPECT_TRUE(record.ended);
  EXPECT_EQ(Sizes(record)[110017], 80000);
}

TEST(RecordMalloc, EndsWhereFilesMayNotBeLarger) {
  ASSERT_EQ(RunUnusual("limits"), 0);
  const Record record = UnusualRecord();
  EXPECT_FALSE(record.ended);
  EXPECT_LE(record.bytes_read, 100000u);
  EXPECT_GT(Sizes(record)[110017], 5000);
}

TEST(RecordMalloc, HasWhatAProgramDidBeforeQuickExit) {
  ASSERT_EQ(RunUnusual("quick"), 0);
  const Record record = UnusualRecord();
  EXPECT_TRUE(record.ended);
  EXPECT_EQ(Sizes(record)[130021], 1);
}

TEST(RecordMalloc, HasCyclesWithoutAName) {
  ASSERT_EQ(RunUnusual("unnamed"), 0);
  const Record record = UnusualRecord();
  const RecordedCycles cycles = FindCycles(record, MatchBlocks(record));
  ASSERT_EQ(cycles.cycles.size(), 1u);
  EXPECT_EQ(record.names[cycles.cycles[0].name], "");
}

TEST(RecordMalloc, GoesOnWithoutARecordThatCannotBeWritten) {
  const std::string line = "TIDEPOOL_RECORD=/no/such/folder/r LD_PRELOAD=" +
                           Absolute("memory/recording/preload/libtidepool_record.so") + " ls / > " +
                           testing::TempDir() + "/out 2> " + testing::TempDir() + "/err";
  EXPECT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(std::system(("grep -q 'TIDEPOOL_RECORD cannot be written: No such file' " +
                         testing::TempDir() + "/err")
                            .c_str()),
            0);
}

}  // namespace
}  // namespace tidepool
