// Spill files on a queue that fails, is short, damages and hangs.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/spill_file.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

constexpr size_t kPage = SpillFile::kPageBytes;

// What becomes of transfers; any thread.
struct Faults {
  enum Kind { kNone, kFails, kFull, kNothing, kShort, kAgain, kDamaged, kHangs };
  std::mutex mutex;
  std::condition_variable changed;
  Kind kind = kNone;
  int64_t at = 0;     // the transfer of that number, from the last Set()
  int64_t count = 1;  // and so many in all
  int64_t next = 0;
  int64_t hanging = 0;
  bool throws = false;

  void Set(Kind what, int64_t first, int64_t many = 1) {
    std::lock_guard lock(mutex);
    kind = what;
    at = first;
    count = many;
    next = 0;
    changed.notify_all();
  }
};

class FaultyQueue final : public FileQueue {
 public:
  FaultyQueue(std::unique_ptr<FileQueue> queue, int descriptor, std::shared_ptr<Faults> faults)
      : queue_(std::move(queue)), descriptor_(descriptor), faults_(std::move(faults)) {}
  ~FaultyQueue() override {
    EXPECT_TRUE(hanging_.empty()) << "what hangs is answered before the end";
  }

  void Submit(const FileTransfer& transfer) override {
    std::unique_lock lock(faults_->mutex);
    const int64_t number = faults_->next++;
    const bool now = number >= faults_->at && number < faults_->at + faults_->count;
    const Faults::Kind kind = now ? faults_->kind : Faults::kNone;
    const auto answer = [&](int64_t result) {
      answers_.push_back({transfer.tag, result});
      queue_->Wake();
    };
    switch (kind) {
      case Faults::kNone:
        break;
      case Faults::kFails:
        return answer(-EIO);
      case Faults::kFull:
        return answer(-ENOSPC);
      case Faults::kNothing:
        return answer(0);
      case Faults::kAgain:
        return answer(-EAGAIN);
      case Faults::kShort: {  // a part of a page more than whole ones
        FileTransfer part = transfer;
        part.bytes = std::max(kPage, transfer.bytes / 2 / kPage * kPage);
        return queue_->Submit(part);
      }
      case Faults::kDamaged: {
        const ssize_t moved =
            transfer.writes ? pwrite(descriptor_, transfer.data, transfer.bytes, transfer.offset)
                            : pread(descriptor_, transfer.data, transfer.bytes, transfer.offset);
        transfer.data[moved / 2] ^= std::byte{1};
        if (transfer.writes &&
            pwrite(descriptor_, transfer.data, transfer.bytes, transfer.offset) != moved)
          return;
        return answer(moved);
      }
      case Faults::kHangs:
        hanging_.push_back(transfer);
        ++faults_->hanging;
        return;
    }
    queue_->Submit(transfer);
  }
  std::optional<Done> Wait() override {
    {
      std::lock_guard lock(faults_->mutex);
      if (faults_->throws) ThrowInternal("the queue is gone");
      if (faults_->kind != Faults::kHangs) {
        for (const FileTransfer& transfer : std::exchange(hanging_, {})) queue_->Submit(transfer);
        faults_->hanging = 0;
      }
      if (!answers_.empty()) {
        const Done done = answers_.front();
        answers_.erase(answers_.begin());
        return done;
      }
    }
    return queue_->Wait();
  }
  void Wake() noexcept override { queue_->Wake(); }
  const char* name() const override { return "faulty"; }

 private:
  const std::unique_ptr<FileQueue> queue_;
  const int descriptor_;
  const std::shared_ptr<Faults> faults_;
  std::vector<FileTransfer> hanging_;
  std::vector<Done> answers_;
};

struct Faulty {
  explicit Faulty(absl::Duration limit = absl::InfiniteDuration())
      : file({.folder = testing::TempDir(),
              .block_bytes = 4 * kPage,
              .in_flight = 2,
              .direct = false,
              .time_limit = limit,
              .queue = [this](int descriptor, int depth) {
                auto queue = std::make_unique<FaultyQueue>(NewThreadQueue(descriptor, depth),
                                                           descriptor, faults);
                wake = queue.get();
                return queue;
              }}) {}
  ~Faulty() {  // the file's end waits for what is under way
    faults->Set(Faults::kNone, 0);
    wake->Wake();
  }
  std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  FileQueue* wake = nullptr;
  SpillFile file;
};

std::vector<unsigned char> Drawn(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> data(bytes);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

std::string ErrorOf(const std::function<void()>& does, absl::StatusCode* code) {
  try {
    does();
  } catch (const Error& error) {
    *code = error.code();
    return error.what();
  }
  *code = absl::StatusCode::kOk;
  return "none";
}

// Whichever block it is: the caller is told, has his bytes, the place is free, and the file goes on.
TEST(SpillFileFaults, EachBlockOfAWriteMayFail) {
  for (const Faults::Kind kind : {Faults::kFails, Faults::kFull, Faults::kNothing}) {
    for (int64_t n = 0; n < 5; ++n) {
      Faulty faulty;
      const std::vector<unsigned char> data = Drawn(18 * kPage + 5, 1);
      const SpilledBytes before = faulty.file.Write(data.data(), data.size());
      const int64_t used = faulty.file.stats().used_bytes;
      faulty.faults->Set(kind, n);
      absl::StatusCode code;
      const std::string what = ErrorOf([&] { faulty.file.Write(data.data(), data.size()); }, &code);
      EXPECT_EQ(code, kind == Faults::kFull ? absl::StatusCode::kResourceExhausted
                                            : absl::StatusCode::kInternal)
          << what;
      EXPECT_THAT(what, HasSubstr(testing::TempDir()));
      EXPECT_THAT(
          what, HasSubstr(absl::StrCat("at offset ", used + 4 * n * static_cast<int64_t>(kPage))));
      EXPECT_EQ(faulty.file.stats().used_bytes, used);
      EXPECT_EQ(faulty.file.stats().failures, 1);
      faulty.faults->Set(Faults::kNone, 0);
      std::vector<unsigned char> back(data.size());
      faulty.file.Read(before, back.data());
      EXPECT_EQ(back, data);
      const SpilledBytes after = faulty.file.Write(data.data(), data.size());
      faulty.file.Read(after, back.data());
      EXPECT_EQ(back, data);
    }
  }
}

TEST(SpillFileFaults, EachBlockOfAReadMayFailAndBeReadAgain) {
  for (const Faults::Kind kind : {Faults::kFails, Faults::kNothing, Faults::kDamaged}) {
    for (int64_t n = 0; n < 5; ++n) {
      Faulty faulty;
      const std::vector<unsigned char> data = Drawn(18 * kPage + 5, 1);
      const SpilledBytes kept = faulty.file.Write(data.data(), data.size());
      faulty.faults->Set(kind, n);
      std::vector<unsigned char> back(data.size());
      absl::StatusCode code;
      const std::string what = ErrorOf([&] { faulty.file.Read(kept, back.data()); }, &code);
      EXPECT_EQ(code,
                kind == Faults::kFails ? absl::StatusCode::kInternal : absl::StatusCode::kDataLoss)
          << what;
      EXPECT_THAT(what, HasSubstr(absl::StrCat("at offset ", 4 * n * static_cast<int64_t>(kPage))));
      faulty.faults->Set(Faults::kNone, 0);
      faulty.file.Read(kept, back.data());
      EXPECT_EQ(back, data);
    }
  }
}

// What was damaged on its way to the disk stays so: each read says it.
TEST(SpillFileFaults, ABlockThatIsDamagedOnTheDiskIsNeverReturned) {
  Faulty faulty;
  const std::vector<unsigned char> data = Drawn(12 * kPage, 1);
  faulty.faults->Set(Faults::kDamaged, 1);
  const SpilledBytes kept = faulty.file.Write(data.data(), data.size());
  std::vector<unsigned char> back(data.size());
  for (int i = 0; i < 3; ++i) {
    absl::StatusCode code;
    const std::string what = ErrorOf([&] { faulty.file.Read(kept, back.data()); }, &code);
    EXPECT_EQ(code, absl::StatusCode::kDataLoss);
    EXPECT_THAT(what, HasSubstr("came back damaged"));
  }
}

TEST(SpillFileFaults, ShortAndInterruptedTransfersGoOn) {
  for (const Faults::Kind kind : {Faults::kShort, Faults::kAgain}) {
    for (int64_t n = 0; n < 12; ++n) {
      Faulty faulty;
      const std::vector<unsigned char> data = Drawn(18 * kPage + 5, 1);
      faulty.faults->Set(kind, n, 3);
      const SpilledBytes kept = faulty.file.Write(data.data(), data.size());
      std::vector<unsigned char> back(data.size());
      faulty.file.Read(kept, back.data());
      EXPECT_EQ(back, data);
    }
  }
  Faulty faulty;  // for ever
  faulty.faults->Set(Faults::kAgain, 0, 1000);
  const std::vector<unsigned char> data = Drawn(kPage, 1);
  EXPECT_THROW(faulty.file.Write(data.data(), data.size()), Error);
}

// After the limit the caller's memory is his again, whatever comes later, and the place of what he
// wanted to write is not given to others before the device has answered.
TEST(SpillFileFaults, ADeviceThatHangsIsToldWithinTheLimit) {
  for (const bool writes : {true, false}) {
    Faulty faulty(absl::Seconds(2));
    std::vector<unsigned char> data = Drawn(4 * kPage, 1);
    const SpilledBytes kept = faulty.file.Write(data.data(), data.size());
    const int64_t used = faulty.file.stats().used_bytes;
    faulty.faults->Set(Faults::kHangs, 0);
    std::vector<unsigned char> back(data.size());
    absl::StatusCode code;
    const std::string what = ErrorOf(
        [&] {
          if (writes) {
            faulty.file.Write(data.data(), data.size());
          } else {
            faulty.file.Read(kept, back.data());
          }
        },
        &code);
    EXPECT_EQ(code, absl::StatusCode::kDeadlineExceeded) << what;
    EXPECT_THAT(what, HasSubstr("at offset"));
    EXPECT_EQ(faulty.file.stats().used_bytes, writes ? 2 * used : used);
    EXPECT_EQ(faulty.file.stats().unfinished, 1);
    // The other block's memory serves on.
    const SpilledBytes other = faulty.file.Write(data.data(), data.size());
    std::fill(back.begin(), back.end(), 0xcc);
    faulty.faults->Set(Faults::kNone, 0);
    faulty.wake->Wake();
    std::vector<unsigned char> third(data.size());
    faulty.file.Read(other, third.data());
    EXPECT_EQ(third, data);
    faulty.file.Read(kept, third.data());
    EXPECT_EQ(third, data);
    for (int i = 0; i < 1000 && faulty.file.stats().used_bytes > 2 * used; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(faulty.file.stats().used_bytes, 2 * used);
    EXPECT_EQ(faulty.file.stats().unfinished, 0);
    EXPECT_EQ(back, std::vector<unsigned char>(data.size(), 0xcc)) << "nobody touched it later";
  }
}

TEST(SpillFileFaults, AQueueThatIsGoneEndsAllThatWaits) {
  Faulty faulty;
  const std::vector<unsigned char> data = Drawn(40 * kPage, 1);
  SpillTransfer waits = faulty.file.BeginWrite(data.data(), data.size());
  {
    std::lock_guard lock(faulty.faults->mutex);
    faulty.faults->throws = true;
  }
  faulty.wake->Wake();
  try {
    waits.Wait();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the queue is gone"));
  }
  absl::StatusCode code = absl::StatusCode::kOk;
  for (int i = 0; i < 1000 && code == absl::StatusCode::kOk; ++i) {
    ErrorOf([&] { faulty.file.Write(data.data(), data.size()); }, &code);
  }
  EXPECT_EQ(code, absl::StatusCode::kInternal);
}

// By direction: what went, what was waited for, and what was moved in vain; of the file, and of all.
TEST(SpillFileCounters, StallsAndWhatWasInVain) {
  const SpillCounters before = TotalSpillCounters();
  const int64_t pages = 3 * static_cast<int64_t>(kPage);
  const std::vector<unsigned char> data = Drawn(3 * kPage, 1);
  std::vector<unsigned char> back(data.size());
  {
    Faulty faulty;
    SpillFile& file = faulty.file;
    // Answered once somebody waits.
    const auto wait = [&](SpillTransfer transfer, SpillWayCounters SpillFileStats::*way) {
      const int64_t stalls = (file.stats().*way).stalls;
      std::thread answers([&] {
        while ((file.stats().*way).stalls == stalls) std::this_thread::yield();
        faulty.faults->Set(Faults::kNone, 0);
        faulty.wake->Wake();
      });
      SpilledBytes kept = transfer.Wait();
      answers.join();
      return kept;
    };
    faulty.faults->Set(Faults::kHangs, 0);
    const SpilledBytes kept =
        wait(file.BeginWrite(data.data(), data.size()), &SpillFileStats::written);
    EXPECT_EQ(file.stats().written.stalls, 1);
    EXPECT_GT(file.stats().written.stall_nanoseconds, 0);
    EXPECT_EQ(TotalSpillCounters().used_bytes - before.used_bytes, pages);
    {
      SpillTransfer done = file.BeginRead(kept, back.data());
      while (!done.is_done()) std::this_thread::yield();
      done.Wait();
      EXPECT_EQ(file.stats().read.stalls, 0) << "it was there when it was asked for";
    }
    faulty.faults->Set(Faults::kHangs, 0);
    wait(file.BeginRead(kept, back.data()), &SpillFileStats::read);
    EXPECT_EQ(file.stats().read.stalls, 1);
    { const SpillTransfer dropped = file.BeginRead(kept, back.data()); }
    { const SpillTransfer dropped = file.BeginWrite(data.data(), 100); }
    file.BeginWrite(nullptr, 0);  // nothing, in vain or not
    const SpillFileStats stats = file.stats();
    EXPECT_EQ(stats.read.dropped, 1);
    EXPECT_EQ(stats.read.dropped_bytes, pages);
    EXPECT_EQ(stats.written.dropped, 1);
    EXPECT_EQ(stats.written.dropped_bytes, 100);
    EXPECT_EQ(stats.failures, 0);
  }
  const SpillCounters after = TotalSpillCounters();
  EXPECT_EQ(after.used_bytes, before.used_bytes);
  EXPECT_GE(after.peak_bytes, before.used_bytes + pages);
  EXPECT_GE(after.written.bytes - before.written.bytes, pages);
  EXPECT_EQ(after.read.stalls - before.read.stalls, 1);
  EXPECT_EQ(after.read.dropped - before.read.dropped, 1);
  EXPECT_EQ(after.written.dropped_bytes - before.written.dropped_bytes, 100);
  EXPECT_EQ(after.failures, before.failures);
  EXPECT_THAT(DescribeSpillCounters(after), HasSubstr("spill files, read: "));
  EXPECT_EQ(DescribeSpillCounters({}), "");
}

}  // namespace
}  // namespace tidepool
