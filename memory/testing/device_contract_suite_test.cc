// The contract of device memory on the host and on the simulated device; and that the suite finds
// what is wrong with providers that break it.
#include "tidepool/memory/testing/device_contract_suite.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/device_contract_faults.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

void BeginAsynchronously() {
  static uint64_t seed = 0;
  Begin();
  SimulatedDevice::Get().set_has_pinned_host(seed % 2 == 0);
  SimulatedDevice::Get().set_asynchronous(++seed);
}

const bool registered =
    RegisterDeviceContract({.device = Host()}) &&
    RegisterDeviceContract(Simulated("simulated", &Begin)) &&
    RegisterDeviceContract(Simulated("simulated_asynchronous", &BeginAsynchronously));

TEST_F(DeviceContractSuite, FindsNothingWrongWithAWrapperThatPassesEverythingOn) {
  Wrapper wrapper;
  EXPECT_THAT(Failing(DeviceContractChecks()), testing::IsEmpty());
}

TEST_F(DeviceContractSuite, UnknownChecksAreRefused) {
  EXPECT_THROW(DeviceProblems({.device = Host()}, "no such check"), Error);
}

TEST_F(DeviceContractOrder, FindsAWaitThatDoesNotWait) {
  struct : Wrapper {
    void WaitFor(QueuePoint) override {}
  } wrapper;
  EXPECT_THAT(
      Failing({"queued_copies_begin_after_their_points", "kernels_and_copies_keep_their_order"}),
      testing::SizeIs(2));
}

TEST_F(DeviceContractOrder, FindsCopiesThatDoNotWaitForTheirPoint) {
  struct : Wrapper {
    QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                                 QueuePoint) override {
      return base().QueueCopyFromHost(to, from, bytes, {});
    }
    QueuePoint QueueCopyToHost(std::byte* to, const std::byte* from, size_t bytes,
                               QueuePoint) override {
      return base().QueueCopyToHost(to, from, bytes, {});
    }
  } wrapper;
  EXPECT_THAT(
      Failing({"queued_copies_begin_after_their_points", "kernels_and_copies_keep_their_order"}),
      testing::SizeIs(2));
}

TEST_F(DeviceContractOrder, FindsKernelsThatDoNotWaitForACopy) {
  struct : Wrapper {
    void ComputeAfter(int, QueuePoint) override {}
  } wrapper;
  EXPECT_THAT(Failing({"kernels_and_copies_keep_their_order"}), testing::SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsAComputePointThatHasPassedTooEarly) {
  struct : Wrapper {
    QueuePoint ComputePoint(int) override { return {}; }
  } wrapper;
  EXPECT_THAT(Failing({"kernels_and_copies_keep_their_order"}), testing::SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsCopiesThatAreStillUnderWayWhenTheyReturn) {
  struct : Wrapper {
    void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
      base().QueueCopyFromHost(to, from, bytes, ComputePoint(0));
    }
  } wrapper;
  EXPECT_THAT(Failing({"copies_are_done_when_they_return"}), testing::SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsPointsThatHavePassedTooEarly) {
  struct : Wrapper {
    bool HasPassed(QueuePoint) override { return true; }
  } wrapper;
  EXPECT_THAT(Failing({"queued_copies_begin_after_their_points"}), testing::SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsDescriptionsThatCannotBe) {
  struct : Wrapper {
    Device device() const override { return Host(); }
    MemoryTraits traits() const override { return {.alignment = 48, .granularity = 1000}; }
  } wrapper;
  EXPECT_THAT(DeviceProblems(Simulated("", nullptr), "describes_itself"),
              testing::IsSupersetOf({testing::HasSubstr("device() is host, expected simulated:0"),
                                     testing::HasSubstr("alignment is 48"),
                                     testing::HasSubstr("granularity is 1000"),
                                     testing::HasSubstr("reserve_bytes is 0")}));
}

TEST_F(DeviceContractSuite, FindsRangesThatOverlap) {
  struct : Wrapper {
    static constexpr size_t Bytes() { return size_t{4} << 30; }
    std::byte* Reserve(size_t) noexcept override {
      if (ranges++ == 0) range = base().Reserve(Bytes());
      return range;
    }
    void Unreserve(std::byte*, size_t) noexcept override {
      if (--ranges == 0) base().Unreserve(range, Bytes());
    }
    std::byte* range = nullptr;
    int ranges = 0;
  } wrapper;
  EXPECT_THAT(Failing({"reserves_aligned_ranges"}), testing::SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsUnalignedRangesAndBlocks) {
  constexpr size_t kShift = SimulatedDevice::kGranularity;
  struct : Wrapper {
    std::byte* Reserve(size_t bytes) noexcept override {
      std::byte* const base_of = bytes > SIZE_MAX / 4 ? nullptr : base().Reserve(bytes + kShift);
      return base_of != nullptr ? base_of + kShift : nullptr;
    }
    void Unreserve(std::byte* at, size_t bytes) noexcept override {
      base().Unreserve(at - kShift, bytes + kShift);
    }
    std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
      std::byte* const data =
          bytes > SIZE_MAX / 16 ? nullptr : base().Allocate(bytes + 16, alignment);
      return data != nullptr ? data + 16 : nullptr;
    }
    void Release(std::byte* data, size_t bytes) noexcept override {
      base().Release(data - 16, bytes + 16);
    }
  } wrapper;
  EXPECT_THAT(Failing({"reserves_aligned_ranges", "gives_aligned_blocks"}), testing::SizeIs(2));
}

// The last byte of what is not a multiple of 8.
TEST_F(DeviceContractSuite, FindsALostByteInEachKindOfCopy) {
  static size_t (*const kept)(size_t) = [](size_t bytes) {
    return bytes > 4096 && bytes % 8 == 1 ? bytes - 1 : bytes;
  };
  {
    struct : Wrapper {
      void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
        base().CopyFromHost(to, from, kept(bytes));
      }
    } wrapper;
    EXPECT_THAT(Failing({"copies_any_size_and_offset"}), testing::SizeIs(1));
  }
  {
    struct : Wrapper {
      void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
        base().CopyOnDevice(to, from, kept(bytes));
      }
    } wrapper;
    EXPECT_THAT(Failing({"copies_any_size_and_offset"}), testing::SizeIs(1));
  }
  {
    struct : Wrapper {
      void Fill(std::byte* to, std::byte value, size_t bytes) override {
        base().Fill(to, value, kept(bytes));
      }
    } wrapper;
    EXPECT_THAT(Failing({"copies_any_size_and_offset"}), testing::SizeIs(1));
  }
  struct : Wrapper {
    QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                                 QueuePoint after) override {
      return base().QueueCopyFromHost(to, from, bytes - bytes / 1000, after);
    }
  } wrapper;
  EXPECT_THAT(Failing({"queued_copies_begin_after_their_points", "several_threads", "workspaces",
                       "rings", "pools_of_workspaces", "mirrors"}),
              testing::SizeIs(6));
}

TEST_F(DeviceContractSuite, FindsBytesThatAreLostWhereADecommitIsRefused) {
  struct : Wrapper {
    bool Decommit(std::byte* at, size_t bytes) noexcept override {
      base().Fill(at, std::byte{0}, bytes);
      return false;
    }
  } wrapper;
  EXPECT_THAT(Failing({"commits_and_decommits_pieces"}), testing::SizeIs(1));
}

// As of one that counts before it asks.
TEST_F(DeviceContractSuite, FindsRefusalsThatAreCounted) {
  struct : Wrapper {
    std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
      counted += bytes;
      return counted > kCapacity ? nullptr : base().Allocate(bytes, alignment);
    }
    void Release(std::byte* data, size_t bytes) noexcept override {
      base().Release(data, bytes);
      counted -= bytes;
    }
    size_t counted = 0;
  } wrapper;
  EXPECT_THAT(Failing({"refusals_change_nothing"}), testing::SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsMemoryThatIsNotTakenBack) {
  struct : Wrapper {
    void Release(std::byte* data, size_t bytes) noexcept override {
      leaked.push_back({data, bytes});
    }
    std::vector<Block> leaked;
  } wrapper;
  EXPECT_THAT(Failing({"takes_everything_back"}), testing::SizeIs(1));
  for (const DeviceProvider::Block& block : wrapper.leaked)
    Wrapper::base().Release(block.data, block.bytes);
}

TEST_F(DeviceContractSuite, FindsACapacityThatIsNone) {
  Wrapper::base().set_capacity(10 * kCapacity);
  EXPECT_THAT(Failing({"refusals_change_nothing"}), testing::SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsCopiesOfNothingThatAreRefused) {
  struct : Wrapper {
    void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
      if (to == nullptr) ThrowInternal("null");
      base().CopyToHost(to, from, bytes);
    }
  } wrapper;
  EXPECT_THAT(Failing({"copies_of_nothing"}), testing::SizeIs(1));
}

// A piece of host memory for all copies.
TEST_F(DeviceContractSuite, FindsStagingThatThreadsShare) {
  struct : Wrapper {
    void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
      {
        std::lock_guard<std::mutex> lock(mutex);
        staging.resize(std::max(staging.size(), bytes));
        base().CopyToHost(staging.data(), from, bytes);
      }
      std::this_thread::yield();
      std::lock_guard<std::mutex> lock(mutex);
      std::memcpy(to, staging.data(), bytes);
    }
    std::mutex mutex;
    std::vector<std::byte> staging;
  } wrapper;
  EXPECT_THAT(Failing({"several_threads"}), testing::SizeIs(1));
}

// Blocks are kept and handed out anew while copies and kernels still use them.
TEST_F(DeviceContractOrder, FindsMemoryThatIsUsedAgainTooEarly) {
  struct : Wrapper {
    std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
      const auto fits = std::find_if(kept.begin(), kept.end(),
                                     [&](const Block& block) { return block.bytes == bytes; });
      if (fits == kept.end() || alignment > SimulatedDevice::kAlignment)
        return base().Allocate(bytes, alignment);
      std::byte* const data = fits->data;
      kept.erase(fits);
      return data;
    }
    void Release(std::byte* data, size_t bytes) noexcept override { kept.push_back({data, bytes}); }
    std::vector<Block> kept;
  } wrapper;
  std::set<std::string> failing;
  // Late work is drawn by chance: some seeds are kind.
  for (uint64_t seed = 1; seed < 6 && failing.empty(); ++seed) {
    DeviceContract contract = Simulated("", nullptr);
    contract.seed = seed;
    for (const std::string& problem : DeviceProblems(contract, "memory_given_back_in_flight"))
      failing.insert(problem);
  }
  EXPECT_THAT(failing, testing::Contains(testing::HasSubstr("memory released under a")));
  for (const DeviceProvider::Block& block : wrapper.kept)
    Wrapper::base().Release(block.data, block.bytes);
}

}  // namespace
}  // namespace tidepool
