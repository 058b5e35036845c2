#include "tidepool/memory/spill/spill_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_timeline.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_counters.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kPage = SpillFile::kPageBytes;

std::string Folder() { return testing::TempDir(); }

std::vector<unsigned char> Drawn(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> data(bytes);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

struct Case {
  const char* name;
  bool direct;
  bool threads;
};

class SpillFiles : public testing::TestWithParam<Case> {
 protected:
  SpillFileOptions Options(size_t block_bytes = 4 * kPage, int in_flight = 3) const {
    SpillFileOptions options;
    options.folder = Folder();
    options.block_bytes = block_bytes;
    options.in_flight = in_flight;
    options.direct = GetParam().direct;
    if (GetParam().threads) options.queue = &NewThreadQueue;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, SpillFiles,
                         testing::Values(Case{"direct", true, false}, Case{"cached", false, false},
                                         Case{"direct_threads", true, true},
                                         Case{"cached_threads", false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SpillFiles, BytesOfAnyLengthAndAddressComeBack) {
  SpillFile file(Options());
  EXPECT_LE(file.stats().direct, GetParam().direct);
  for (const size_t bytes : {size_t{0}, size_t{1}, kPage - 1, kPage, kPage + 1, 4 * kPage,
                             4 * kPage + 1, size_t{1000000}}) {
    for (const size_t shift : {0, 1, 7, 64}) {
      std::vector<unsigned char> data = Drawn(bytes + shift, bytes + shift);
      const SpilledBytes kept = file.Write(data.data() + shift, bytes);
      EXPECT_TRUE(kept.has_value());
      ASSERT_EQ(kept.bytes(), bytes);
      std::vector<unsigned char> back(shift + bytes + 64, 0xcc);
      file.Read(kept, back.data() + shift);
      EXPECT_TRUE(std::equal(data.begin() + shift, data.end(), back.begin() + shift));
      for (size_t i = 0; i < shift; ++i) ASSERT_EQ(back[i], 0xcc);
      for (size_t i = shift + bytes; i < back.size(); ++i) ASSERT_EQ(back[i], 0xcc);
    }
  }
  EXPECT_EQ(file.stats().used_bytes, 0);
  EXPECT_EQ(file.stats().written.transfers, 32);
  EXPECT_EQ(file.stats().read.transfers, 32);
  EXPECT_EQ(file.stats().written.bytes, file.stats().read.bytes);
}

// Threads write, read, move and drop at random; what is in use is never more than the places that
// they have, and the file holds little more than the most of that.
TEST_P(SpillFiles, ManyThreadsWriteReadAndDrop) {
  SpillFileOptions options = Options(2 * kPage, 4);
  options.capacity_bytes = 600 * static_cast<int64_t>(kPage);
  SpillFile file(options);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      struct Kept {
        SpilledBytes bytes;
        uint64_t seed;
      };
      std::vector<Kept> all;
      std::vector<unsigned char> back;
      for (int step = 0; step < 80; ++step) {
        if (random() % 2 == 0 || all.empty()) {
          const uint64_t seed = random();
          const std::vector<unsigned char> data = Drawn(1 + seed % 300000, seed);
          try {
            SpillTransfer write = file.BeginWrite(data.data(), data.size());
            if (random() % 8 == 0) continue;  // dropped: nothing of it stays
            all.push_back({write.Wait(), seed});
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error.what();
            ++refused;
          }
        } else {
          const size_t which = random() % all.size();
          back.assign(all[which].bytes.bytes(), 0);
          SpillTransfer read = file.BeginRead(all[which].bytes, back.data());
          read.Wait();
          ASSERT_EQ(back, Drawn(back.size(), all[which].seed));
          if (random() % 2 == 0) {
            all[which] = std::move(all.back());
            all.pop_back();
          }
        }
        if (all.size() > 12) all.erase(all.begin(), all.begin() + 6);
        if (step % 50 == 49) file.Trim();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(refused, 0);
  // Writes that were dropped may be under way still.
  for (int i = 0; i < 1000 && file.stats().used_bytes > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(file.stats().used_bytes, 0);
  EXPECT_LE(file.stats().file_bytes, options.capacity_bytes);
  file.Trim();
  EXPECT_EQ(file.stats().file_bytes, 0);
}

// Nothing is lost when the file has no room: what is there stays, and there is room again.
TEST_P(SpillFiles, AFullFileRefusesWhatIsNew) {
  SpillFileOptions options = Options();
  options.capacity_bytes = 64 * static_cast<int64_t>(kPage) + 100;
  SpillFile file(options);
  const std::vector<unsigned char> data = Drawn(40 * kPage, 1);
  SpilledBytes kept = file.Write(data.data(), data.size());
  try {
    file.Write(data.data(), 25 * kPage);
    FAIL() << "there are 24 pages";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr(Folder()));
    EXPECT_THAT(error.what(), HasSubstr(absl::StrCat(40 * kPage, " of ", options.capacity_bytes)));
  }
  EXPECT_EQ(file.stats().used_bytes, 40 * static_cast<int64_t>(kPage));
  const SpilledBytes more = file.Write(data.data(), 24 * kPage);
  std::vector<unsigned char> back(data.size());
  file.Read(kept, back.data());
  EXPECT_EQ(back, data);
  kept = {};
  const SpilledBytes again = file.Write(data.data(), 40 * kPage);
  file.Read(again, back.data());
  EXPECT_EQ(back, data);
}

TEST(SpillFile, NothingOfItIsInTheFolderAndTheDiskHasItBack) {
  const std::string folder = Folder() + "/empty";
  std::filesystem::create_directory(folder);
  const std::vector<unsigned char> data = Drawn(100 * kPage, 1);
  SpillFile file({.folder = folder, .block_bytes = 16 * kPage});
  const SpilledBytes kept = file.Write(data.data(), data.size());
  // A process that is killed now leaves nothing.
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_GE(file.stats().file_bytes, 100 * static_cast<int64_t>(kPage));
  EXPECT_GT(file.Trim(), 0);
  EXPECT_EQ(file.stats().file_bytes, 100 * static_cast<int64_t>(kPage));
  std::vector<unsigned char> back(data.size());
  file.Read(kept, back.data());
  EXPECT_EQ(back, data);
}

// As of kill -9 in the middle of writes: the folder is empty after each, and was before, as the file never had a name.
TEST(SpillFile, AProcessThatIsKilledLeavesNothing) {
  const std::string folder = Folder() + "/killed";
  std::filesystem::create_directory(folder);
  int64_t blocks_seen = 0;
  for (int round = 0; round < 12; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::vector<unsigned char> data(300 * kPage, 7);
      for (;;) {  // new files too, so that one is killed while it is made
        SpillFile file({.folder = folder, .block_bytes = 16 * kPage});
        std::vector<SpillTransfer> writes;
        for (int i = 0; i < 6; ++i) writes.push_back(file.BeginWrite(data.data(), data.size()));
        if (write(ends[1], "w", 1) != 1) std::_Exit(1);
        for (SpillTransfer& transfer : writes) transfer.Wait();
      }
    }
    char byte;
    for (int i = 0; i <= round / 3; ++i) ASSERT_EQ(read(ends[0], &byte, 1), 1);
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 4)));
    // Its file, if it has one at this moment: no name, and blocks of the disk.
    std::error_code none;
    const std::string open_files = absl::StrCat("/proc/", child, "/fd");
    for (const auto& entry : std::filesystem::directory_iterator(open_files, none)) {
      struct stat status;
      const bool is_there = stat(entry.path().c_str(), &status) == 0;
      if (is_there && S_ISREG(status.st_mode) && status.st_nlink == 0)
        blocks_seen += status.st_blocks;
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << round << ", while it is written";
    EXPECT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << round;
    close(ends[0]);
    close(ends[1]);
  }
  EXPECT_GT(blocks_seen, 0) << "none was looked at while it was written";
}

TEST(SpillFile, WhatCannotBeMeantIsRefused) {
  const auto message = [](const SpillFileOptions& options) {
    try {
      SpillFile file(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("it was made");
  };
  EXPECT_THAT(message({.folder = Folder(), .block_bytes = 5000}), HasSubstr("block_bytes is 5000"));
  EXPECT_THAT(message({.folder = Folder(), .block_bytes = 0}), HasSubstr("block_bytes is 0"));
  EXPECT_THAT(message({.folder = Folder(), .in_flight = 0}), HasSubstr("in_flight is 0"));
  EXPECT_THAT(message({.folder = Folder(), .in_flight = 65}), HasSubstr("expected 1 to 64"));
  EXPECT_THAT(message({.folder = Folder(), .capacity_bytes = -1}),
              HasSubstr("capacity_bytes is -1"));
  EXPECT_THAT(message({.folder = Folder(), .time_limit = absl::ZeroDuration()}),
              HasSubstr("time_limit"));
  EXPECT_THAT(message({.folder = "/no/such/folder"}), HasSubstr("/no/such/folder"));
  EXPECT_THAT(message({.folder = "/proc/self/exe"}), HasSubstr("expected a folder"));

  SpillFile file({.folder = Folder()}), other({.folder = Folder()});
  unsigned char byte = 1;
  const SpilledBytes kept = other.Write(&byte, 1);
  EXPECT_THROW(file.Read(kept, &byte), Error);
  EXPECT_THROW(file.Read({}, &byte), Error);
  EXPECT_THROW(other.Read(kept, nullptr), Error);
  EXPECT_THROW(file.Write(nullptr, 1), Error);
  SpillTransfer transfer = other.BeginRead(kept, &byte);
  transfer.Wait();
  EXPECT_THROW(transfer.Wait(), Error);
  EXPECT_THROW(SpillTransfer().Wait(), Error);
}

// In whatever order they end.
TEST(SpillFile, WhatIsLeftOutlivesTheFile) {
  SpilledBytes kept;
  SpillTransfer read;
  const std::vector<unsigned char> data = Drawn(50 * kPage, 3);
  std::vector<unsigned char> back(data.size());
  {
    SpillFile file({.folder = Folder(), .block_bytes = kPage});
    kept = file.Write(data.data(), data.size());
    read = file.BeginRead(kept, back.data());
  }
  read.Wait();
  EXPECT_EQ(back, data);
  kept.Reset();
  EXPECT_FALSE(kept.has_value());
}

TEST(SpillFile, ItsMemoryIsTheOwners) {
  MemoryOwner& owner = MemoryOwner::Process().Child("spills");
  const auto charged = [&] { return MemoryBudget::Global().Of(owner, Host()).taken_bytes; };
  const int64_t before = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  {
    SpillFile file(
        {.folder = Folder(), .block_bytes = 64 * kPage, .in_flight = 4, .owner = &owner});
    EXPECT_GE(charged(), 256 * static_cast<int64_t>(kPage));
    EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace),
              before + charged());
  }
  EXPECT_EQ(charged(), 0);
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace), before);
}

// As of a disk: the size of the process's files is limited.
TEST(SpillFileDeathTest, AFullDiskIsAnErrorOfTheWriteThatNeedsMore) {
  const auto fill = [](SpillCompression compression) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {100 * kPage, 100 * kPage};
    setrlimit(RLIMIT_FSIZE, &limit);
    SpillFile file({.folder = Folder(), .block_bytes = 8 * kPage, .compression = compression});
    const std::vector<unsigned char> data = Drawn(60 * kPage, 1);
    SpilledBytes kept = file.Write(data.data(), data.size());
    bool refused = false;
    try {
      file.Write(data.data(), data.size());
    } catch (const Error& error) {
      refused = error.code() == absl::StatusCode::kResourceExhausted &&
                std::string(error.what()).find("the disk is full") != std::string::npos;
    }
    std::vector<unsigned char> back(data.size());
    file.Read(kept, back.data());
    const bool same = back == data;
    kept.Reset();
    file.Write(data.data(), data.size());
    const bool is_free = file.stats().used_bytes == 0;  // also what the refused write had
    std::_Exit(refused && same && is_free ? 0 : 1);
  };
  EXPECT_EXIT(fill(SpillCompression::kNone), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(fill(SpillCompression::kLz4), testing::ExitedWithCode(0), "");
}

// The ledger's report, its JSON and the timeline have them.
TEST(SpillFileCounters, AreInReports) {
  MemoryTimeline timeline({.granularity_bytes = 1});
  const std::vector<unsigned char> data = Drawn(3 * kPage, 1);
  const int64_t pages = 3 * static_cast<int64_t>(kPage);
  const SpillCounters before = TotalSpillCounters();
  SpillFile file({.folder = testing::TempDir()});
  const SpilledBytes kept = file.Write(data.data(), data.size());
  const SpillCounters after = TotalSpillCounters();
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  EXPECT_EQ(snapshot.spilled.written.bytes, before.written.bytes + pages);
  EXPECT_THAT(snapshot.ToString(), HasSubstr(DescribeSpillCounters(after)));
  EXPECT_THAT(
      snapshot.ToJson(),
      AllOf(HasSubstr("\"tier\": \"file\""),
            HasSubstr(absl::StrCat("\"used_bytes\": ", before.used_bytes + pages)),
            HasSubstr(absl::StrCat("\"stall_nanoseconds\": ", after.written.stall_nanoseconds)),
            HasSubstr(absl::StrCat("\"dropped\": ", after.read.dropped))));
  MemoryTracker::Global().Add(Host(), MemoryKind::kExternal, 1);
  MemoryTracker::Global().Add(Host(), MemoryKind::kExternal, -1);
  timeline.Stop();
  const MemoryTimeline::Sample last = timeline.samples().back();
  EXPECT_EQ(last.spilled_bytes, before.used_bytes + pages);
  EXPECT_EQ(last.spill_written_bytes, before.written.bytes + pages);
  EXPECT_EQ(last.spill_read_bytes, before.read.bytes);
  EXPECT_EQ(last.spill_stall_nanoseconds,
            after.read.stall_nanoseconds + after.written.stall_nanoseconds);
  EXPECT_THAT(timeline.ToJson(),
              HasSubstr(absl::StrCat("\"spill_written\":", last.spill_written_bytes)));
  EXPECT_THAT(timeline.ToChromeTrace(), HasSubstr("{\"name\":\"spill files\",\"ph\":\"C\""));
}

}  // namespace
}  // namespace tidepool
