// Spillable arrays written, read, viewed, spilled, read ahead, lent and freed from several threads under a budget that has room for a
// part of them: each has what was written to it last. At random, with a seed that is printed.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/failing_queue.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

constexpr int kThreads = 4, kArrays = 12;
constexpr int64_t kMostElements = 6000;

// An array and what it is to hold. The lock is that of who writes or frees against who reads; moving goes on beside both.
struct Slot {
  std::shared_mutex mutex;
  SpillableArray array;
  int64_t elements = 0;
  int64_t first = 0;  // element i is first + i
};

void Fill(NDArray& array, int64_t elements, int64_t first) {
  auto* const data = reinterpret_cast<int64_t*>(array.raw_data());
  for (int64_t i = 0; i < elements; ++i) data[i] = first + i;
  array.MarkWritten();
}

bool Holds(const NDArray& array, int64_t elements, int64_t first) {
  const auto* const data = reinterpret_cast<const int64_t*>(array.raw_data());
  for (int64_t i = 0; i < elements; ++i) {
    if (data[i] != first + i) return false;
  }
  return true;
}

class Model {
 public:
  Model(uint64_t seed, SpillFile& file) : seed_(seed), spillables_(file, "model") {}

  void Run(int steps) {
    MemoryOwner& owner = MemoryOwner::Process().Child("spillable model");
    {
      const MemoryOwnerScope scope(owner);
      for (Slot& slot : slots_) Renew(slot, 1 + next_.fetch_add(kMostElements) % kMostElements);
    }
    // Each thread may have one of the largest in use.
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), (kThreads * kMostElements + 1000) * 8);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([this, &owner, t, steps] {
        const MemoryOwnerScope scope(owner);
        std::mt19937_64 random(seed_ * 100 + static_cast<uint64_t>(t));
        for (int step = 0; step < steps; ++step) Step(random);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Slot& slot : slots_) Read(slot);
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
    for (Slot& slot : slots_) slot.array = SpillableArray();
    EXPECT_EQ(spillables_.stats().items, 0);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, Host()).taken_bytes, 0);
  }
  SpillablesStats stats() const { return spillables_.stats(); }
  int64_t refused() const { return refused_; }

 private:
  // What may be refused for want of memory, as others have it pinned; or fails as the disk does.
  template <typename Call>
  void Try(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      const bool expected = error.code() == absl::StatusCode::kResourceExhausted ||
                            error.code() == absl::StatusCode::kInternal;
      EXPECT_TRUE(expected) << error.message();
      ++refused_;
    }
  }

  void Renew(Slot& slot, int64_t elements) {
    const int64_t first = next_.fetch_add(kMostElements);
    NDArray array({elements}, DType::kInt64, Place::Heap());
    Fill(array, elements, first);
    slot.array = SpillableArray(spillables_, std::move(array), "renewed");
    slot.elements = elements;
    slot.first = first;
  }

  void Read(Slot& slot) {
    Try([&] {
      const SpillableArray::Pinned pinned = slot.array.Read();
      EXPECT_TRUE(Holds(*pinned, slot.elements, slot.first)) << "seed " << seed_;
    });
  }

  void Step(std::mt19937_64& random) {
    const auto draw = [&](uint64_t below) { return static_cast<int64_t>(random() % below); };
    Slot& slot = slots_[static_cast<size_t>(draw(kArrays))];
    switch (draw(10)) {
      case 0:
      case 1: {  // all of it is written
        const std::unique_lock lock(slot.mutex);
        return Try([&] {
          const SpillableArray::Pinned pinned = slot.array.Write();
          slot.first = next_.fetch_add(kMostElements);
          Fill(*pinned, slot.elements, slot.first);
        });
      }
      case 2: {  // an element, through a handle that outlives the pin
        const std::unique_lock lock(slot.mutex);
        return Try([&] {
          NDArray handle = *slot.array.Read();
          std::this_thread::yield();
          EXPECT_TRUE(Holds(handle, slot.elements, slot.first)) << "seed " << seed_;
          slot.first = next_.fetch_add(kMostElements);
          Fill(handle, slot.elements, slot.first);
        });
      }
      case 3: {  // a view, kept for a while
        const std::shared_lock lock(slot.mutex);
        return Try([&] {
          const int64_t begin = draw(static_cast<uint64_t>(slot.elements));
          const NDArray view = slot.array.Read()->Slice(0, begin, slot.elements);
          std::this_thread::yield();
          EXPECT_TRUE(Holds(view, slot.elements - begin, slot.first + begin)) << "seed " << seed_;
        });
      }
      case 4: {  // lent to other code
        const std::unique_lock lock(slot.mutex);
        return Try([&] {
          std::optional<HeldBytes> held;
          int64_t* data = nullptr;
          {
            const SpillableArray::Pinned pinned = slot.array.Read();
            held.emplace(pinned->buffer());
            data = reinterpret_cast<int64_t*>(pinned->raw_data());
          }
          std::this_thread::yield();
          slot.first = next_.fetch_add(kMostElements);
          for (int64_t i = 0; i < slot.elements; ++i) data[i] = slot.first + i;
        });
      }
      case 5: {
        const std::shared_lock lock(slot.mutex);
        return Try([&] { slot.array.Spill(); });
      }
      case 6: {
        const std::shared_lock lock(slot.mutex);
        return Try([&] { slot.array.Prefetch(); });
      }
      case 7: {  // freed, and another one made
        const std::unique_lock lock(slot.mutex);
        return Try([&] { Renew(slot, 1 + draw(kMostElements)); });
      }
      default: {
        const std::shared_lock lock(slot.mutex);
        return Read(slot);
      }
    }
  }

  const uint64_t seed_;
  Spillables spillables_;
  Slot slots_[kArrays];
  std::atomic<int64_t> next_{0}, refused_{0};
};

TEST(SpillableArrayModel, EachHoldsWhatWasWrittenLast) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SpillFile file({.folder = testing::TempDir(), .block_bytes = 16384, .in_flight = 2});
    Model model(seed, file);
    model.Run(400);
    std::printf("seed %d: %s  %d refused\n", static_cast<int>(seed),
                model.stats().ToString().c_str(), static_cast<int>(model.refused()));
    EXPECT_GT(model.stats().spills, 100);
    EXPECT_GT(model.stats().returns, 100);
    EXPECT_EQ(file.stats().used_bytes, 0);
  }
}

// Each transfer of the file fails now and then: what was in memory stays there, what is in the file may be read again.
std::unique_ptr<FileQueue> RarelyFailing(std::unique_ptr<FileQueue> queue,
                                         const std::atomic<bool>& fails) {
  return std::make_unique<FailingQueue>(
      std::move(queue),
      [&fails, random = std::mt19937_64(5)](const FileTransfer& transfer) mutable {
        if (!fails || random() % 7 != 0) return 0;
        return transfer.writes && random() % 2 == 0 ? ENOSPC : EIO;
      });
}

TEST(SpillableArrayModel, LosesNothingOnADiskThatFails) {
  std::atomic<bool> fails{true};
  SpillFile file({.folder = testing::TempDir(),
                  .block_bytes = 16384,
                  .in_flight = 2,
                  .queue = [&](int descriptor, int depth) -> std::unique_ptr<FileQueue> {
                    return RarelyFailing(NewFileQueue(descriptor, depth), fails);
                  }});
  Model model(9, file);
  model.Run(600);
  EXPECT_GT(model.refused(), 0);
  EXPECT_GT(model.stats().failures, 0);
  std::printf("%s  %d refused\n", model.stats().ToString().c_str(),
              static_cast<int>(model.refused()));
}

}  // namespace
}  // namespace tidepool
