// Blocks that are packed on their way to the file, and when that is done.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
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
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spill_packer.h"

namespace tidepool {
namespace {

using internal::PackingPays;
using internal::SpillDevicePace;
using internal::SpillPacker;
using testing::HasSubstr;

constexpr size_t kPage = SpillFile::kPageBytes;
constexpr auto kPageSigned = static_cast<int64_t>(kPage);

std::vector<unsigned char> Drawn(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> data(bytes);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  return data;
}

// As activations behind a rectifier are: runs of zeros between numbers.
std::vector<unsigned char> Rectified(size_t bytes, uint64_t seed) {
  std::vector<unsigned char> data = Drawn(bytes, seed);
  for (size_t i = 0; i < bytes; ++i) {
    if (i / 64 % 4 != 0) data[i] = 0;
  }
  return data;
}

SpillFileOptions Options(SpillCompression compression, size_t block_bytes = 16 * kPage) {
  SpillFileOptions options;
  options.folder = testing::TempDir();
  options.block_bytes = block_bytes;
  options.in_flight = 3;
  options.compression = compression;
  return options;
}

std::vector<unsigned char> Back(SpillFile& file, const SpilledBytes& kept) {
  std::vector<unsigned char> back(kept.bytes() + 1, 0xcc);
  file.Read(kept, back.data());
  EXPECT_EQ(back.back(), 0xcc) << "written behind its end";
  back.pop_back();
  return back;
}

TEST(SpillPacking, BytesComeBackAndTakeWhatTheyAreWorth) {
  SpillFile file(Options(SpillCompression::kLz4));
  for (const size_t bytes : {size_t{0}, size_t{1}, kPage, kPage + 1, 2 * kPage, 16 * kPage,
                             16 * kPage + 1, size_t{1000003}}) {
    for (const std::vector<unsigned char>& data :
         {std::vector<unsigned char>(bytes), Rectified(bytes, bytes), Drawn(bytes, bytes)}) {
      const SpilledBytes kept = file.Write(data.data(), bytes);
      EXPECT_EQ(kept.bytes(), bytes);
      EXPECT_EQ(Back(file, kept), data);
    }
  }
  EXPECT_EQ(file.stats().used_bytes, 0);

  const auto taken = [&](const std::vector<unsigned char>& data) {
    const SpillFileStats before = file.stats();
    const SpilledBytes kept = file.Write(data.data(), data.size());
    const SpillFileStats after = file.stats();
    EXPECT_EQ(after.written.bytes - before.written.bytes, static_cast<int64_t>(data.size()));
    EXPECT_LE(after.written.stored_bytes - before.written.stored_bytes, after.used_bytes);
    return after.used_bytes;
  };
  EXPECT_EQ(taken(std::vector<unsigned char>(64 * kPage)), 4 * kPageSigned) << "a page a block";
  EXPECT_LT(taken(Rectified(64 * kPage, 1)), 32 * kPageSigned);
  EXPECT_EQ(taken(Drawn(64 * kPage, 1)), 64 * kPageSigned) << "as it is";
}

// Blocks of one write that are and are not packed.
TEST(SpillPacking, EachBlockForItself) {
  SpillFile file(Options(SpillCompression::kLz4));
  std::vector<unsigned char> data = Drawn(64 * kPage, 1);
  std::fill(data.begin() + 16 * kPage, data.begin() + 32 * kPage, 7);
  const SpilledBytes kept = file.Write(data.data(), data.size());
  EXPECT_EQ(file.stats().used_bytes, 49 * kPageSigned);
  EXPECT_EQ(Back(file, kept), data);
}

// A file that would be too small for them as they are.
TEST(SpillPacking, AFullFileIsToldAndNothingOfItStays) {
  SpillFileOptions options = Options(SpillCompression::kLz4);
  options.capacity_bytes = 40 * kPageSigned;
  SpillFile file(options);
  const std::vector<unsigned char> sparse = Rectified(96 * kPage, 1);
  const SpilledBytes kept = file.Write(sparse.data(), sparse.size());
  const int64_t used = file.stats().used_bytes;
  EXPECT_LE(used, 40 * kPageSigned);
  const std::vector<unsigned char> dense = Drawn(64 * kPage, 2);
  SpillTransfer write = file.BeginWrite(dense.data(), dense.size());  // nobody knows yet
  try {
    write.Wait();
    FAIL() << "64 pages beside " << used << " bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr("(capacity_bytes) are in use"));
  }
  write = {};
  for (int i = 0; i < 2000 && file.stats().used_bytes > used; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(file.stats().used_bytes, used);
  EXPECT_EQ(Back(file, kept), sparse);
}

TEST(SpillPacking, ManyThreadsWriteReadAndDrop) {
  SpillFileOptions options = Options(SpillCompression::kLz4, 4 * kPage);
  options.capacity_bytes = 300 * kPageSigned;
  SpillFile file(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      std::vector<std::pair<SpilledBytes, uint64_t>> all;
      const auto data_of = [](uint64_t seed) {
        const size_t bytes = 1 + seed % 300000;
        return seed % 3 == 0 ? Drawn(bytes, seed) : Rectified(bytes, seed);
      };
      for (int step = 0; step < 80; ++step) {
        if (random() % 2 == 0 || all.empty()) {
          const uint64_t seed = random();
          const std::vector<unsigned char> data = data_of(seed);
          try {
            SpillTransfer write = file.BeginWrite(data.data(), data.size());
            if (random() % 8 == 0) continue;
            all.emplace_back(write.Wait(), seed);
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), absl::StatusCode::kResourceExhausted) << error.what();
          }
        } else {
          const auto& [kept, seed] = all[random() % all.size()];
          ASSERT_EQ(Back(file, kept), data_of(seed));
        }
        if (all.size() > 12) all.erase(all.begin(), all.begin() + 6);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 2000 && file.stats().used_bytes > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(file.stats().used_bytes, 0);
}

// What is done to the transfers of a file.
class OtherQueue : public FileQueue {
 public:
  OtherQueue(int descriptor, int depth, std::function<void(const FileTransfer&)> at_submit,
             std::function<void(Done&)> at_done)
      : queue_(NewThreadQueue(descriptor, depth)),
        at_submit_(std::move(at_submit)),
        at_done_(std::move(at_done)) {}
  void Submit(const FileTransfer& transfer) override {
    at_submit_(transfer);
    queue_->Submit(transfer);
  }
  std::optional<Done> Wait() override {
    std::optional<Done> done = queue_->Wait();
    if (done.has_value()) at_done_(*done);
    return done;
  }
  void Wake() noexcept override { queue_->Wake(); }
  const char* name() const override { return "other"; }

 private:
  const std::unique_ptr<FileQueue> queue_;
  const std::function<void(const FileTransfer&)> at_submit_;
  const std::function<void(Done&)> at_done_;
};

// Whichever block it is, and whether it was packed or not.
TEST(SpillPacking, ABlockThatIsDamagedOrFailsIsTold) {
  for (const bool damages : {true, false}) {
    for (int n = 0; n < 4; ++n) {
      int writes = 0;
      bool is_on = false;
      SpillFileOptions options = Options(SpillCompression::kLz4);
      options.direct = false;
      options.queue = [&](int descriptor, int depth) {
        return std::make_unique<OtherQueue>(
            descriptor, depth,
            [&](const FileTransfer& transfer) {
              if (damages && transfer.writes && writes++ == n) transfer.data[n] ^= std::byte{16};
            },
            [&](FileQueue::Done& done) {
              if (!damages && is_on && writes++ == n) done.result = -EIO;
            });
      };
      SpillFile file(options);
      std::vector<unsigned char> data = Rectified(64 * kPage, 1);
      std::copy_n(Drawn(16 * kPage, 1).begin(), 16 * kPage, data.begin());
      const SpilledBytes kept = file.Write(data.data(), data.size());
      is_on = true;
      std::vector<unsigned char> back(data.size());
      try {
        file.Read(kept, back.data());
        FAIL() << n;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(),
                  damages ? absl::StatusCode::kDataLoss : absl::StatusCode::kInternal);
        EXPECT_THAT(error.what(), HasSubstr("at offset"));
      }
      if (!damages) {
        file.Read(kept, back.data());
        EXPECT_EQ(back, data);
      }
    }
  }
}

// On a device that is slow what becomes smaller is packed, once its pace was seen, and the rest is not.
TEST(SpillPacking, AutoPacksWhereTheDeviceIsWhatOthersWaitFor) {
  SpillFileOptions options = Options(SpillCompression::kAuto);
  options.queue = [](int descriptor, int depth) {
    return std::make_unique<OtherQueue>(
        descriptor, depth, [](const FileTransfer&) {},
        [](FileQueue::Done&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  };
  SpillFile file(options);
  const std::vector<unsigned char> sparse(256 * kPage), dense = Drawn(256 * kPage, 1);
  const auto stored = [&](const std::vector<unsigned char>& data) {
    const int64_t before = file.stats().written.stored_bytes;
    const SpilledBytes kept = file.Write(data.data(), data.size());
    EXPECT_EQ(Back(file, kept), data);
    return file.stats().written.stored_bytes - before;
  };
  EXPECT_EQ(stored(sparse), 256 * kPageSigned) << "nothing is known yet";
  EXPECT_LT(stored(sparse), 16 * kPageSigned);
  EXPECT_EQ(stored(dense), 256 * kPageSigned);
  EXPECT_LT(stored(sparse), 16 * kPageSigned);
}

TEST(SpillPacking, ThePaceOfADeviceIsThatWhileItIsWaitedFor) {
  constexpr size_t kBlock = size_t{1} << 20;
  SpillDevicePace pace;
  EXPECT_EQ(pace.seconds_per_byte(), 0);
  pace.Worked(1);
  pace.Waited(0.5);
  pace.Moved(kBlock);
  EXPECT_EQ(pace.seconds_per_byte(), 0) << "the thread was the slower one";
  pace.Waited(3);
  pace.Worked(1);
  pace.Moved(kBlock / 2);
  EXPECT_EQ(pace.seconds_per_byte(), 0) << "too few bytes";
  pace.Moved(kBlock / 2);
  EXPECT_DOUBLE_EQ(pace.seconds_per_byte() * kBlock, 4);
  pace.Worked(9);
  pace.Waited(1);
  pace.Moved(kBlock);
  EXPECT_DOUBLE_EQ(pace.seconds_per_byte() * kBlock, 4) << "as it was";
  pace.Waited(8);
  pace.Moved(kBlock);
  EXPECT_DOUBLE_EQ(pace.seconds_per_byte() * kBlock, 5);
}

TEST(SpillPacking, PaysWhereItTakesLessThanTheDeviceWouldForWhatIsSaved) {
  EXPECT_TRUE(PackingPays({.saved_bytes = 100, .packing_seconds = 1, .unpacking_seconds = 0.5},
                          /*device_seconds_per_byte=*/0.01));
  EXPECT_FALSE(
      PackingPays({.saved_bytes = 100, .packing_seconds = 1.6, .unpacking_seconds = 0.5}, 0.01));
  EXPECT_FALSE(PackingPays({.saved_bytes = 0, .packing_seconds = 0.1}, 1));
  EXPECT_FALSE(PackingPays({.saved_bytes = 100, .packing_seconds = 0.1}, 0)) << "not known";
}

// Whatever bytes come back, nothing is written outside.
TEST(SpillPacking, WhatIsNoPackedBlockIsRefused) {
  SpillPacker packer(SpillCompression::kLz4);
  const std::vector<unsigned char> data = Rectified(8 * kPage, 1);
  std::vector<std::byte> packed(data.size()), back(data.size() + 1, std::byte{0xcc});
  const auto* const from = reinterpret_cast<const std::byte*>(data.data());
  const size_t bytes = packer.Pack(from, data.size(), packed.data());
  ASSERT_GT(bytes, 0u);
  ASSERT_TRUE(packer.Unpack(packed.data(), bytes, back.data(), data.size()));
  EXPECT_EQ(std::memcmp(back.data(), data.data(), data.size()), 0);
  EXPECT_FALSE(packer.Unpack(packed.data(), bytes - 1, back.data(), data.size()));
  EXPECT_FALSE(packer.Unpack(packed.data(), bytes, back.data(), data.size() - 1));
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> damaged = packed;
    damaged[random() % bytes] = static_cast<std::byte>(random());
    packer.Unpack(damaged.data(), bytes, back.data(), data.size());
    ASSERT_EQ(back.back(), std::byte{0xcc});
  }
}

TEST(SpillPacking, NamesAreThoseOfTheFlag) {
  for (const SpillCompression one :
       {SpillCompression::kNone, SpillCompression::kLz4, SpillCompression::kAuto}) {
    EXPECT_EQ(ParseSpillCompression("flag", SpillCompressionName(one)), one);
  }
  try {
    ParseSpillCompression("flag --spill_compression", "zip");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "flag --spill_compression: found \"zip\", expected none, lz4 or auto");
  }
}

}  // namespace
}  // namespace tidepool
