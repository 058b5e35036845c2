// What every MemoryResource promises, as a suite. A new resource is an instance more:
//
//   INSTANTIATE_TEST_SUITE_P(Mine, ResourceContract, testing::Values(ResourceCase{
//       "mine", [](ResourceStack& stack, DeviceProvider& memory) { stack.Add<Mine>(memory); }}),
//       NameOfResourceCase);
//
// Sizes that exist and that do not, alignments, contents, exhaustion, a source that refuses any of
// its requests, and threads where the resource allows them; on the device of the case. To be
// included by one source of a test.
#ifndef TIDEPOOL_MEMORY_RESOURCE_TESTING_RESOURCE_CONTRACT_H_
#define TIDEPOOL_MEMORY_RESOURCE_TESTING_RESOURCE_CONTRACT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/resource_stack.h"
#include "tidepool/memory/testing/failing_provider.h"

namespace tidepool {

struct ResourceCase {
  std::string name;
  // Adds the resource, and what it wraps, all of it out of `memory`.
  std::function<void(ResourceStack& stack, DeviceProvider& memory)> build;
  Device device = Host();
  bool any_thread = false;
  size_t most_alignment = 64;  // that the resource serves
};

inline std::string NameOfResourceCase(const testing::TestParamInfo<ResourceCase>& info) {
  return info.param.name;
}

class ResourceContract : public testing::TestWithParam<ResourceCase> {
 protected:
  struct Block {
    Allocation allocation;
    size_t bytes;
    size_t alignment;
    std::byte value{};
  };

  ResourceContract() : memory_(GetParam().device) {
    ledger_ = Ledger();
    taken_ = MemoryBudget::Global().process().taken_bytes;
    GetParam().build(stack_, memory_);
  }
  // Whatever a test did: what it released is nowhere counted any more.
  ~ResourceContract() override {
    stack_.Trim();
    EXPECT_EQ(Ledger(), ledger_);
    EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, taken_);
    EXPECT_EQ(stack_.owned_bytes(), 0);
  }

  static std::vector<int64_t> Ledger() {
    std::vector<int64_t> bytes;
    for (const DeviceMemory& device : MemoryTracker::Global().Snapshot().devices) {
      if (device.total.current_bytes != 0) bytes.push_back(device.total.current_bytes);
    }
    return bytes;
  }
  Block Allocate(size_t bytes, size_t alignment) {
    return {stack_.Allocate(bytes, alignment), bytes, alignment};
  }
  void Release(const Block& block) {
    stack_.Release(block.allocation.token, block.bytes, block.alignment);
  }
  void Fill(Block& block, std::byte value) {
    block.value = value;
    memory_.Fill(block.allocation.data, value, block.bytes);
  }
  void Check(const Block& block) {
    std::vector<std::byte> seen(block.bytes);
    memory_.CopyToHost(seen.data(), block.allocation.data, block.bytes);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), block.value), block.bytes);
  }
  // Of any mixture of sizes and alignments that the resource serves.
  template <typename Random>
  std::pair<size_t, size_t> Any(Random& random) {
    const size_t bytes = random() % (random() % 8 == 0 ? 100000 : 2000);
    size_t alignment = 1;
    while (alignment < GetParam().most_alignment && random() % 5 != 0) alignment *= 2;
    return {bytes, alignment};
  }

  FailingProvider memory_;
  ResourceStack stack_;
  std::vector<int64_t> ledger_;
  int64_t taken_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ResourceContract);

TEST_P(ResourceContract, BlocksAreApartAlignedAndKeepTheirBytes) {
  std::mt19937_64 random(1);
  std::vector<Block> live;
  std::map<std::byte*, std::byte*> ranges;  // begin to end
  for (int step = 0; step < 250; ++step) {
    if (live.size() < 3 || (live.size() < 60 && random() % 2 == 0)) {
      const auto [bytes, alignment] = Any(random);
      Block block = Allocate(bytes, alignment);
      ASSERT_TRUE(block.allocation) << bytes << " aligned to " << alignment;
      ASSERT_NE(block.allocation.data, nullptr);
      ASSERT_EQ(block.allocation.refusal, Refusal::kNone);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(block.allocation.data) % alignment, 0);
      std::byte* const end = block.allocation.data + std::max<size_t>(bytes, 1);
      const auto next = ranges.lower_bound(block.allocation.data);
      ASSERT_TRUE(next == ranges.end() || end <= next->first);
      ASSERT_TRUE(next == ranges.begin() || std::prev(next)->second <= block.allocation.data);
      ranges[block.allocation.data] = end;
      Fill(block, static_cast<std::byte>(random()));
      live.push_back(block);
    } else {
      std::swap(live[random() % live.size()], live.back());
      Check(live.back());
      ranges.erase(live.back().allocation.data);
      Release(live.back());
      live.pop_back();
    }
  }
  for (const Block& block : live) {
    Check(block);
    Release(block);
  }
}

TEST_P(ResourceContract, TheSystemIsAskedForNoLessThanTheFootprintSays) {
  for (const size_t bytes : {0, 1, 1000, 100000})
    EXPECT_GE(stack_.FootprintBytes(bytes, 16), bytes);
}

TEST_P(ResourceContract, WhatCannotExistIsRefusedAndChangesNothing) {
  const int64_t requests = memory_.faults().requests();
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 5, SIZE_MAX - 4096, SIZE_MAX / 2 + 1,
                             size_t{1} << 62, MemoryResource::kMostBytes + 1}) {
    for (const size_t alignment : {size_t{1}, size_t{16}, GetParam().most_alignment}) {
      const Allocation refused = stack_.Allocate(bytes, alignment);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.data, nullptr);
      EXPECT_EQ(refused.refusal, Refusal::kImpossible) << bytes;
      ASSERT_NE(refused.refused_by, nullptr);
      try {
        AllocateOrThrow(stack_, bytes, alignment);
        ADD_FAILURE() << "granted";
      } catch (const OutOfMemoryError& error) {
        EXPECT_NE(error.message().find(std::to_string(bytes)), std::string::npos)
            << error.message();
        EXPECT_EQ(error.message().find('\n'), std::string::npos);
      }
    }
  }
  for (const size_t alignment : {0, 3, 48}) {
    EXPECT_EQ(stack_.Allocate(100, alignment).refusal, Refusal::kImpossible) << alignment;
  }
  EXPECT_EQ(memory_.faults().requests(), requests) << "the device was asked";
  Release(Allocate(100, 16));
}

// Whichever request its source refuses, once or twice running: an answer, and nothing has changed.
TEST_P(ResourceContract, ASourceThatRefusesIsAnAnswer) {
  std::mt19937_64 random(2);
  for (const int64_t count : {1, 2, 1000}) {
    for (int64_t n = 0; n < 4; ++n) {
      std::vector<Block> live;
      stack_.Trim();
      memory_.faults().FailRequest(n, count);
      for (int i = 0; i < 8; ++i) {
        const auto [bytes, alignment] = Any(random);
        const size_t owned = stack_.owned_bytes();
        const std::vector<int64_t> ledger = Ledger();
        const int64_t taken = MemoryBudget::Global().process().taken_bytes;
        try {
          const Block block = Allocate(bytes * 8, alignment);
          if (block.allocation) {
            live.push_back(block);
            continue;
          }
          EXPECT_NE(block.allocation.refused_by, nullptr);
          EXPECT_EQ(block.allocation.refusal, Refusal::kExhausted);
          EXPECT_GT(block.allocation.missing_bytes, 0);
        } catch (const Error& error) {  // a resource that touches its bytes
          EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
        }
        EXPECT_LE(stack_.owned_bytes(), std::max(owned, size_t{4} << 20));
        EXPECT_EQ(Ledger(), ledger);
        if (stack_.owned_bytes() == owned) {
          EXPECT_EQ(MemoryBudget::Global().process().taken_bytes, taken);
        }
      }
      memory_.faults().Clear();
      for (Block& block : live) {
        Fill(block, std::byte{7});
        Check(block);
        Release(block);
      }
    }
  }
}

TEST_P(ResourceContract, ManyThreadsShareWhatIsForAnyThread) {
  if (!GetParam().any_thread) GTEST_SKIP() << "for one thread at a time";
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      std::vector<Block> live;
      for (int step = 0; step < 250; ++step) {
        if (live.size() < 20 && random() % 2 == 0) {
          const auto [bytes, alignment] = Any(random);
          Block block = Allocate(bytes, alignment);
          if (!block.allocation) continue;
          Fill(block, static_cast<std::byte>(t));
          live.push_back(block);
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          Check(live.back());
          Release(live.back());
          live.pop_back();
        }
      }
      for (const Block& block : live) Release(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ResourceContract, SaysWhatItIsOnOneLine) {
  EXPECT_FALSE(stack_.Describe().empty());
  EXPECT_EQ(stack_.Describe().find('\n'), std::string::npos);
  EXPECT_EQ(stack_.device(), memory_.device());
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_TESTING_RESOURCE_CONTRACT_H_
