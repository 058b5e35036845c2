// FailingProvider: a device whose requests fail where a FaultPlan says so.
//
//   FailingProvider host(Host());               // until its end in the host provider's place
//   host.faults().FailRequest(5);
//
// Counted as requests: reserving addresses, committing, decommitting, single blocks, copies, fills, and
// queues, their points and orders. Memory requests are refused as by an exhausted device, the others throw
// kInternal.
// Giving back never fails. Threads: any; make and end it while nobody else uses the device.
#ifndef TIDEPOOL_MEMORY_TESTING_FAILING_PROVIDER_H_
#define TIDEPOOL_MEMORY_TESTING_FAILING_PROVIDER_H_

#include <functional>
#include <string>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/testing/fault_plan.h"

namespace tidepool {

class FailingProvider final : public DeviceProvider {
 public:
  explicit FailingProvider(Device device) : device_(device) {
    base_ = &GetDeviceProvider(device, "FailingProvider");
    SwapDeviceProviderForTesting(device, this);
  }
  // Workspaces on the device must be gone.
  ~FailingProvider() { SwapDeviceProviderForTesting(device_, base_); }
  FailingProvider(const FailingProvider&) = delete;
  FailingProvider& operator=(const FailingProvider&) = delete;

  FaultPlan& faults() { return faults_; }
  // Runs before addresses go back, on whichever thread gives them: as if another one came at that
  // moment.
  void set_before_unreserving(std::function<void()> runs) { before_unreserving_ = std::move(runs); }

  std::string name() const override { return base_->name(); }
  Device device() const override { return base_->device(); }
  MemoryTraits traits() const override { return base_->traits(); }
  std::byte* Reserve(size_t bytes) noexcept override {
    return faults_.Next() ? nullptr : base_->Reserve(bytes);
  }
  void Unreserve(std::byte* base, size_t bytes) noexcept override {
    if (before_unreserving_) before_unreserving_();
    base_->Unreserve(base, bytes);
  }
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override {
    return !faults_.Next() && base_->Commit(at, bytes, large_pages);
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    return !faults_.Next() && base_->Decommit(at, bytes);
  }
  void Prefault(std::byte* at, size_t bytes) noexcept override { base_->Prefault(at, bytes); }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return faults_.Next() ? nullptr : base_->Allocate(bytes, alignment);
  }
  void Release(std::byte* data, size_t bytes) noexcept override { base_->Release(data, bytes); }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    MayFail("copy from the host");
    base_->CopyFromHost(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    MayFail("copy to the host");
    base_->CopyToHost(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    MayFail("copy");
    base_->CopyOnDevice(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    MayFail("fill");
    base_->Fill(to, value, bytes);
  }
  void OpenQueue(int queue, void* native) override {
    MayFail("making of a queue");
    base_->OpenQueue(queue, native);
  }
  void CloseQueue(int queue) noexcept override { base_->CloseQueue(queue); }
  void* NativeQueue(int queue) override { return base_->NativeQueue(queue); }
  QueuePoint ComputePoint(int queue) override {
    MayFail("point of a queue");
    return base_->ComputePoint(queue);
  }
  void ComputeAfter(int queue, QueuePoint point) override {
    MayFail("order of a queue");
    base_->ComputeAfter(queue, point);
  }
  bool HasPassed(QueuePoint point) override { return base_->HasPassed(point); }
  void WaitFor(QueuePoint point) override { base_->WaitFor(point); }
  void ThrowIfLost(const std::string& who) override { base_->ThrowIfLost(who); }
  DeviceProvider* PinnedHost() override { return base_->PinnedHost(); }

 private:
  void MayFail(const char* what) {
    if (faults_.Next()) ThrowInternal(name() + ": the " + what + " failed, as the test wanted");
  }

  const Device device_;
  DeviceProvider* base_;
  FaultPlan faults_;
  std::function<void()> before_unreserving_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_FAILING_PROVIDER_H_
