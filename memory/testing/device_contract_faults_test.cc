// That the suite finds what is wrong with devices, faults that come now and then too.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/testing/device_contract_faults.h"

namespace tidepool {
namespace {

using ::testing::SizeIs;

const std::vector<std::string> kOrder = {"copies_and_fills_come_behind_all_work"};
const std::vector<std::string> kGivingBack = {"takes_everything_back"};

// One call of ten, no two sequences of ten alike.
bool IsTenth() {
  static std::mt19937_64 random(7);
  return random() % 10 == 0;
}

// The bytes of a device, whatever is queued.
std::byte* Bytes(const std::byte* at, size_t bytes) { return Wrapper::base().Hidden(at, bytes); }

TEST_F(DeviceContractOrder, FindsACopyOnTheDeviceThatIsStillUnderWay) {
  struct : Wrapper {
    void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
      if (bytes == 0) return;
      std::byte* const target = Bytes(to, bytes);
      const std::byte* const source = Bytes(from, bytes);
      base().QueueKernel({{to, to + bytes}}, [=] { std::memcpy(target, source, bytes); });
    }
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsCopiesOnTheDeviceBesideWhatIsQueued) {
  struct : Wrapper {
    void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
      if (bytes == 0) return;
      WaitFor(ComputePoint(0));  // not for copies
      std::memcpy(Bytes(to, bytes), Bytes(from, bytes), bytes);
    }
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsFillsBesideWhatIsQueued) {
  struct Fills : Wrapper {
    void Fill(std::byte* to, std::byte value, size_t bytes) override {
      if (bytes == 0) return;
      if (waits_for_kernels) WaitFor(ComputePoint(0));
      std::fill_n(Bytes(to, bytes), bytes, value);
    }
    bool waits_for_kernels = false;
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
  wrapper.waits_for_kernels = true;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsCopiesThatAreSometimesBesideKernels) {
  struct : Wrapper {
    void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
      if (bytes == 0 || !IsTenth()) return base().CopyFromHost(to, from, bytes);
      std::memcpy(Bytes(to, bytes), from, bytes);
    }
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsCopiesThatSometimesWaitForKernelsAlone) {
  struct : Wrapper {
    void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
      if (bytes == 0 || !IsTenth()) return base().CopyToHost(to, from, bytes);
      WaitFor(ComputePoint(0));
      std::memcpy(to, Bytes(from, bytes), bytes);
    }
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractOrder, FindsQueuedCopiesThatSometimesDropTheirOrder) {
  {
    struct : Wrapper {
      QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                                   QueuePoint after) override {
        return base().QueueCopyFromHost(to, from, bytes, IsTenth() ? QueuePoint{} : after);
      }
    } wrapper;
    EXPECT_THAT(Failing(kOrder), SizeIs(1));
  }
  struct : Wrapper {
    QueuePoint QueueCopyToHost(std::byte* to, const std::byte* from, size_t bytes,
                               QueuePoint after) override {
      return base().QueueCopyToHost(to, from, bytes, IsTenth() ? QueuePoint{} : after);
    }
  } wrapper;
  EXPECT_THAT(Failing(kOrder), SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsDecommitsThatAreNone) {
  struct : Wrapper {
    // The simulated device ends the test where committed memory is committed.
    bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override {
      const auto kept_here = kept.find(at);
      if (kept_here == kept.end()) return base().Commit(at, bytes, large_pages);
      const size_t there = kept_here->second;
      kept.erase(kept_here);
      return there >= bytes || base().Commit(at + there, bytes - there, large_pages);
    }
    bool Decommit(std::byte* at, size_t bytes) noexcept override {
      kept[at] = bytes;
      return true;
    }
    void Unreserve(std::byte* at, size_t bytes) noexcept override {
      kept.erase(kept.lower_bound(at), kept.lower_bound(at + bytes));
      base().Unreserve(at, bytes);
    }
    std::map<std::byte*, size_t> kept;
  } wrapper;
  EXPECT_THAT(Failing(kGivingBack), SizeIs(1));
}

TEST_F(DeviceContractSuite, FindsABlockOfManyThatIsNotTakenBack) {
  struct : Wrapper {
    void ReleaseMany(const Block* blocks, int count) noexcept override {
      for (int i = 0; i < count; ++i) {
        if (count > 1 && i == count - 1) {
          leaked.push_back(blocks[i]);
        } else {
          base().Release(blocks[i].data, blocks[i].bytes);
        }
      }
    }
    std::vector<Block> leaked;
  } wrapper;
  EXPECT_THAT(Failing(kGivingBack), SizeIs(1));
  for (const DeviceProvider::Block& block : wrapper.leaked)
    Wrapper::base().Release(block.data, block.bytes);
}

TEST_F(DeviceContractSuite, FindsBlocksThatAreSometimesNotTakenBack) {
  struct : Wrapper {
    void Release(std::byte* data, size_t bytes) noexcept override {
      if (IsTenth()) return leaked.push_back({data, bytes});
      base().Release(data, bytes);
    }
    std::vector<Block> leaked;
  } wrapper;
  EXPECT_THAT(Failing(kGivingBack), SizeIs(1));
  for (const DeviceProvider::Block& block : wrapper.leaked)
    Wrapper::base().Release(block.data, block.bytes);
}

}  // namespace
}  // namespace tidepool
