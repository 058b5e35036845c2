#ifndef ABACUS_ABACUS_DEVICE_H_
#define ABACUS_ABACUS_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "abacus/work_queue.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/host_provider.h"

namespace abacus {

// In a header: static initialisers of other files, such as those that register kernels, use it.
inline const tidepool::DeviceType kAbacus = tidepool::DeviceType::Named("abacus");

// An accelerator that there is not: "abacus:0", with 256 MiB of memory that the host cannot touch,
// a queue for kernels and one for copies beside them. Its addresses are mapped without access; the
// card finds their bytes a fixed distance further on.
class AbacusDevice final : public tidepool::DeviceProvider {
 public:
  static constexpr size_t kMemoryBytes = size_t{256} << 20;

  // Null where there is no such device. Made at the first call, never destroyed.
  static AbacusDevice* Find(uint8_t index);

  // For kernels: in the order of their queue. `uses`: what of the device's memory.
  void QueueKernel(std::vector<ByteExtent> uses, std::function<void()> run) {
    kernels_.Add(std::move(uses), std::move(run));
  }
  // Where the card finds what is at an address of its memory. The host may hand it on, not look.
  template <typename T>
  T* OnCard(T* address) const {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) + (memory_ - addresses_));
  }

  std::string name() const override { return "abacus:0"; }
  tidepool::Device device() const override { return {kAbacus, 0}; }
  tidepool::MemoryTraits traits() const override;
  std::byte* Reserve(size_t bytes) noexcept override;
  void Unreserve(std::byte* base, size_t bytes) noexcept override;
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override;
  bool Decommit(std::byte* at, size_t bytes) noexcept override;
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override;
  void Release(std::byte* data, size_t bytes) noexcept override;
  void CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) override;
  void CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) override;
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override;
  void Fill(std::byte* to, std::byte value, size_t bytes) override;
  tidepool::QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                                         tidepool::QueuePoint after) override;
  tidepool::QueuePoint QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                       tidepool::QueuePoint after) override;
  tidepool::QueuePoint ComputePoint(int queue) override;
  void ComputeAfter(int queue, tidepool::QueuePoint point) override;
  bool HasPassed(tidepool::QueuePoint point) override;
  void WaitFor(tidepool::QueuePoint point) override;
  // Ordinary memory serves, and host copies of arrays are kept from step to step.
  DeviceProvider* PinnedHost() override { return &tidepool::HostProvider(); }

 private:
  AbacusDevice();
  static void Copy(std::byte* to, const std::byte* from, size_t bytes);
  // Behind all that is queued, and done on return.
  void RunNow(std::function<void()> work);
  void Await(tidepool::QueuePoint point);
  void ThrowFailure();
  void AwaitUsersOf(std::byte* at, size_t bytes);

  // With mutex_ held. Addresses, not memory. What gives back may not fail, so it takes no memory.
  std::byte* TakeAddresses(size_t bytes, size_t alignment);
  void GiveAddresses(std::byte* at) noexcept;
  bool SetCommitted(std::byte* at, size_t bytes, bool committed);

  WorkQueue kernels_, copies_;
  std::byte* addresses_ = nullptr;  // without access, for ever
  std::byte* memory_ = nullptr;     // with, where it is committed
  std::mutex mutex_;
  std::map<std::byte*, size_t> free_, taken_;  // addresses
  std::vector<bool> committed_;                // by page
  size_t used_bytes_ = 0;
};

}  // namespace abacus

#endif  // ABACUS_ABACUS_DEVICE_H_
