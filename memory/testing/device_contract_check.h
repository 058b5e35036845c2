// What the checks of device_contract_suite.h share: a device, bytes to compare, and the list of
// what is wrong.
#ifndef TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_CHECK_H_
#define TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/device_contract_suite.h"

namespace tidepool {

using Bytes = std::vector<std::byte>;

// Bytes that differ from each other's neighbours, and for each seed.
Bytes PatternOf(uint64_t seed, size_t bytes);

class DeviceCheck {
 public:
  explicit DeviceCheck(const DeviceContract& contract)
      : contract(contract),
        device(*FindDeviceProvider(contract.device)),
        traits(device.traits()),
        random(contract.seed) {}

  const DeviceContract& contract;
  DeviceProvider& device;
  const MemoryTraits traits;
  std::mt19937_64 random;

  // Returns `holds`. Any thread.
  bool Expect(bool holds, const std::string& problem);
  // Says where `found` first differs from `expected`.
  bool ExpectSame(const Bytes& found, const Bytes& expected, const std::string& what);
  // The same of bytes on the device.
  bool ExpectOnDevice(const std::byte* at, const Bytes& expected, const std::string& what);

  // To the device; done on return.
  void Write(std::byte* at, const Bytes& bytes) {
    device.CopyFromHost(at, bytes.data(), bytes.size());
  }
  size_t Below(size_t limit) { return random() % limit; }
  Bytes NewPattern(size_t bytes) { return PatternOf(random(), bytes); }
  // Multiples of the granularity that hold so many bytes.
  size_t Granules(size_t bytes) const {
    return (bytes + traits.granularity - 1) / traits.granularity * traits.granularity;
  }
  std::vector<std::string> TakeProblems() { return std::move(problems_); }

 private:
  std::mutex mutex_;
  std::vector<std::string> problems_;
};

// Memory of the device for the length of a block; ends the check where it is refused.
class TestBlock {
 public:
  TestBlock(DeviceProvider& device, size_t bytes, size_t alignment = 0)
      : device_(device),
        bytes_(bytes),
        data_(device.Allocate(bytes, alignment != 0 ? alignment : device.traits().alignment)) {
    if (data_ == nullptr)
      throw std::runtime_error(absl::StrCat("a block of ", bytes, " bytes was refused"));
  }
  ~TestBlock() { Release(); }
  TestBlock(const TestBlock&) = delete;
  TestBlock& operator=(const TestBlock&) = delete;

  void Release() {
    if (data_ != nullptr) device_.Release(data_, bytes_);
    data_ = nullptr;
  }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  DeviceProvider& device_;
  const size_t bytes_;
  std::byte* data_;
};

class TestRange {
 public:
  TestRange(DeviceProvider& device, size_t bytes)
      : device_(device), bytes_(bytes), base_(device.Reserve(bytes)) {
    if (base_ == nullptr)
      throw std::runtime_error(absl::StrCat("a range of ", bytes, " bytes was refused"));
  }
  ~TestRange() { Unreserve(); }
  TestRange(const TestRange&) = delete;
  TestRange& operator=(const TestRange&) = delete;

  void Unreserve() {
    if (base_ != nullptr) device_.Unreserve(base_, bytes_);
    base_ = nullptr;
  }
  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // Ends the check where it is refused.
  std::byte* Commit(size_t offset, size_t bytes, bool large_pages = false) {
    if (!device_.Commit(base_ + offset, bytes, large_pages)) {
      throw std::runtime_error(absl::StrCat("Commit of ", bytes, " bytes was refused"));
    }
    return base_ + offset;
  }

 private:
  DeviceProvider& device_;
  const size_t bytes_;
  std::byte* base_;
};

// What a device of the contract has queued is done at its end, whatever happens before: its host
// memory is the check's.
class WaitAtEnd {
 public:
  explicit WaitAtEnd(DeviceCheck& check) : check_(check) {}
  ~WaitAtEnd() {
    std::byte byte{};
    try {
      TestBlock block(check_.device, 1);
      check_.device.CopyFromHost(block.data(), &byte, 1);  // behind all that is queued
    } catch (const std::exception& error) {
      check_.Expect(false, absl::StrCat("waiting for the device: ", error.what()));
    }
  }

 private:
  DeviceCheck& check_;
};

// Work that has nothing to do with what is checked, in front of it: what comes behind it is late,
// if it may be.
class Busy {
 public:
  explicit Busy(DeviceCheck& check)
      : check_(check),
        filled_(check.device, size_t{16} << 20),
        copied_(check.device, size_t{4} << 20),
        host_(size_t{4} << 20) {}
  // Few long ones: of many short ones most are done when the last is queued.
  void Kernels(size_t bytes_each = size_t{2} << 20) {
    const auto queue_fill = check_.contract.queue_fill;
    if (queue_fill == nullptr) return;
    for (int i = 0; i < 3; ++i) queue_fill(filled_.data(), std::byte{1}, bytes_each);
  }
  void LongKernels() { Kernels(filled_.bytes()); }
  void KernelsIn(int queue, size_t bytes_each) {
    for (int i = 0; i < 3; ++i)
      check_.contract.queue_fill_in(queue, filled_.data(), std::byte{1}, bytes_each);
  }
  void Copies(int count = 4) {
    QueuePoint last;
    for (int i = 0; i < count; ++i) {
      last = check_.device.QueueCopyFromHost(copied_.data(), host_.data(), host_.size(), last);
    }
  }

 private:
  DeviceCheck& check_;
  TestBlock filled_, copied_;
  const Bytes host_;
};

// The checks, by file.
void CheckDescription(DeviceCheck& check);
void CheckRanges(DeviceCheck& check);
void CheckCommits(DeviceCheck& check);
void CheckBlocks(DeviceCheck& check);
void CheckTails(DeviceCheck& check);
void CheckRefusals(DeviceCheck& check);
void CheckGivingBack(DeviceCheck& check);

void CheckCopies(DeviceCheck& check);
void CheckCopiesAreDone(DeviceCheck& check);
void CheckCopiesOfNothing(DeviceCheck& check);
void CheckPinnedHost(DeviceCheck& check);

void CheckPoints(DeviceCheck& check);
void CheckOrderWithKernels(DeviceCheck& check);
void CheckGivingBackInFlight(DeviceCheck& check);
void CheckThreads(DeviceCheck& check);

void CheckPeerCopies(DeviceCheck& check);

void CheckOrderBehindAll(DeviceCheck& check);
void CheckBlocksInFlight(DeviceCheck& check);
void CheckQueues(DeviceCheck& check);

void CheckWorkspaces(DeviceCheck& check);
void CheckRings(DeviceCheck& check);
void CheckPools(DeviceCheck& check);
void CheckMirrors(DeviceCheck& check);
void CheckBudgets(DeviceCheck& check);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_CHECK_H_
