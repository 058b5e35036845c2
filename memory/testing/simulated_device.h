// SimulatedDevice: a device made of host memory that the host may not touch.
//
// Its addresses are mapped without access, so that reading or writing through them faults as it
// would with a graphics card's; the bytes lie elsewhere, and copies and fills find them. Every
// request is checked as a driver would: committing twice, copying from memory that is not committed,
// giving back what was not had, end the test with a message. It has a capacity, counts what it is
// asked, and refuses where its FaultPlan says so. Told to be asynchronous, its kernels and queued
// copies are delayed and reordered as far as the rules allow, and work of its queues that disturbs other
// work ends the test (simulated_queues.h). A kernel can be told to poison it: the device is lost then
// (memory/provider/device_loss.h), does nothing that is queued and refuses everything, as CUDA's after a wrong address.
//
//   Workspace workspace("w", config, SimulatedDevice::kDevice);    // linking it registers it
//   SimulatedDevice::Get().set_capacity(1 << 20);
//
// Threads: any.
#ifndef TIDEPOOL_MEMORY_TESTING_SIMULATED_DEVICE_H_
#define TIDEPOOL_MEMORY_TESTING_SIMULATED_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/kept_blocks.h"
#include "tidepool/memory/testing/fault_plan.h"
#include "tidepool/memory/testing/simulated_queues.h"

namespace tidepool {

class SimulatedDevice final : public DeviceProvider, public KeptBlocks::Source {
 public:
  static constexpr int kDevices = SimulatedQueues::kDevices;  // simulated:0 to simulated:2
  static const Device kDevice;
  static constexpr size_t kGranularity = size_t{64} << 10;
  static constexpr size_t kAlignment = 256;

  struct Counters {
    int64_t reservations = 0, commits = 0, decommits = 0, blocks = 0, releases = 0;
    int64_t orders = 0;  // of compute queues behind points
    int64_t copies_from_host = 0, copies_to_host = 0, copies_on_device = 0, fills = 0;
    int64_t copies_to_peers = 0;
    int64_t bytes_from_host = 0, bytes_to_host = 0, bytes_on_device = 0, bytes_filled = 0;
  };

  static SimulatedDevice& Get(int index = 0);

  // Bytes that may be committed at once, and addresses a growing range is given.
  void set_capacity(size_t bytes);
  void set_reserve_bytes(size_t bytes);
  // Of its arrays; 256 at first.
  void set_alignment(size_t alignment);
  // Without: mirrors and kHostOnly use ordinary host memory. Off at first.
  void set_has_pinned_host(bool has);
  // Whether memory is copied to the other simulated devices directly (memory/device_copy.h). Off at first; of all of
  // them, before the first copy between two.
  static void set_has_peers(bool has);
  // What memory/device_copy.h asks for: a copy of this device's to another one, and its queue.
  QueuePoint QueueCopyToPeer(SimulatedDevice& there, int queue_there, std::byte* to,
                             const std::byte* from, size_t bytes, QueuePoint after,
                             QueuePoint after_there);
  // Blocks are kept when they are released, behind the points of what uses them (kept_blocks.h), so many bytes. Off at
  // first. No block is in use.
  void set_keeps_blocks(size_t most_bytes);
  KeptBlocks* kept_blocks() { return kept_.get(); }
  // Kernels and queued copies run later, in an order that depends on the seed. Off at first.
  void set_asynchronous(uint64_t seed);
  // Off, work that disturbs other work ends nothing: to see wrong bytes instead. On at first.
  void set_checks_order(bool checks) { queues_.set_checks_order(checks); }
  // Defaults again: 1 GiB, 4 GiB, 256, none; blocks are not kept; no faults, counters 0; not asynchronous, checking
  // the order. Nothing may be allocated.
  void Reset();

  // Where the bytes of a whole committed range are: for kernels that run "on" the device. Anything
  // else ends the test with a message.
  std::byte* Hidden(const std::byte* at, size_t bytes);
  // A kernel, in the order of that compute queue. `ranges`: of the device, that it uses.
  void QueueKernel(std::vector<SimulatedQueues::Range> ranges, std::function<void()> run,
                   int queue = 0);

  size_t used_bytes() const;    // committed and blocks
  size_t pinned_bytes() const;  // of its page-locked host memory
  Counters counters() const;
  FaultPlan& faults() { return faults_; }
  // Of kernels, when they run: those that fail poison the device, until Reset().
  FaultPlan& poison() { return poison_; }
  // Whether that is told by the next call of the device, as CUDA does, and not when the kernel runs. Off at first.
  void set_tells_late(bool late) { tells_late_ = late; }

  std::string name() const override;
  Device device() const override { return device_; }
  MemoryTraits traits() const override;
  std::byte* Reserve(size_t bytes) noexcept override;
  void Unreserve(std::byte* base, size_t bytes) noexcept override;
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override;
  bool Decommit(std::byte* at, size_t bytes) noexcept override;
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override;
  void Release(std::byte* data, size_t bytes) noexcept override;
  void ReleaseMany(const Block* blocks, int count) noexcept override;
  bool NoteUsers(const std::byte* data, uint32_t queues) noexcept override;
  QueuePoint EarlierUses(const std::byte* data, size_t bytes) override;
  void CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) override;
  void CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) override;
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override;
  void Fill(std::byte* to, std::byte value, size_t bytes) override;
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                               QueuePoint after) override;
  QueuePoint QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                             QueuePoint after) override;
  void OpenQueue(int queue, void* native) override;
  void CloseQueue(int queue) noexcept override;
  void* NativeQueue(int queue) override;
  QueuePoint ComputePoint(int queue) override {
    CheckQueue(queue);
    CheckWorks("point of a queue");
    return {queues_.ComputePoint(At(queue))};
  }
  void ComputeAfter(int queue, QueuePoint point) override {
    CheckQueue(queue);
    MayFail("order of a queue");
    CountOrder();
    queues_.ComputeAfter(At(queue), point.value);
  }
  bool HasPassed(QueuePoint point) override {
    const bool has_passed = queues_.HasPassed(point.value);
    CheckWorks("look at a point");
    return has_passed;
  }
  void WaitFor(QueuePoint point) override {
    queues_.WaitFor(point.value);
    CheckWorks("wait");
  }
  DeviceProvider* PinnedHost() override;
  void ThrowIfLost(const std::string& who) override;

 private:
  class Pinned;
  struct Range {
    size_t bytes;
    std::byte* hidden;              // where the bytes are
    std::vector<bool> committed;    // by granule
    size_t block_bytes = SIZE_MAX;  // of a single block; SIZE_MAX: a reserved range
  };

  explicit SimulatedDevice(int index);
  std::byte* TakeBlock(size_t bytes, QueuePoint* from) noexcept override;
  void GiveBlock(std::byte* data, size_t bytes) noexcept override;
  void FinishAll() noexcept override;
  std::byte* NewBlock(size_t bytes, size_t alignment) noexcept;
  void EndBlock(std::byte* data, size_t bytes) noexcept;
  [[noreturn]] static void Die(const char* what, const void* at, size_t bytes);
  // These need mutex_ held.
  Range* Find(const std::byte* at, size_t bytes, const char* what, std::byte** base);
  std::byte* Bytes(const std::byte* at, size_t bytes, const char* what);
  std::byte* NewRange(size_t bytes);
  void EndRange(std::byte* base);
  void MayFail(const char* what);
  void AwaitAll();
  bool Works() const { return !poisoned_ && !IsLost(device_); }
  // Throws DeviceLostError, and tells of what was not told yet.
  void CheckWorks(const char* what);
  void CheckQueue(int queue) const;
  int At(int queue) const { return device_.index * SimulatedQueues::kOfOneDevice + queue; }
  void CountOrder();

  const Device device_;
  mutable std::mutex mutex_;
  std::map<std::byte*, Range> ranges_;
  size_t capacity_ = size_t{1} << 30;
  size_t reserve_bytes_ = size_t{4} << 30;
  size_t alignment_ = kAlignment;
  bool has_pinned_host_ = false;
  size_t used_ = 0;
  Counters counters_;
  FaultPlan faults_, poison_;
  std::atomic<bool> poisoned_{false}, tells_late_{false};
  std::atomic<const char*> poisoned_by_{nullptr};
  Pinned* pinned_;
  SimulatedQueues& queues_;        // of all devices
  std::atomic<uint32_t> open_{1};  // compute queues, a bit each
  std::atomic<void*> natives_[kMostQueues] = {};
  std::unique_ptr<KeptBlocks> kept_;
  Reclaimer::Registration reclaimer_;  // of kept_
};

inline const Device SimulatedDevice::kDevice{DeviceType::Named("simulated"), 0};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_SIMULATED_DEVICE_H_
