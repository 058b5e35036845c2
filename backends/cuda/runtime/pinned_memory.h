// Page-locked host memory: what devices copy from and to fastest, and without the host's help.
//
// Ranges are host pages that are locked as they are committed. Blocks come from a pool, because
// locking is dear; sizes are rounded up by at most a fifth, never to the next
// power of two. Blocks given back are kept up to kKeptBytes, as unreferenced host memory in the ledger
// that the Reclaimer may give back, and then unlocked.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_PINNED_MEMORY_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_PINNED_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {

class PinnedMemory final : public DeviceProvider {
 public:
  static constexpr size_t kKeptBytes = size_t{256} << 20;

  // For copies of `device`; usable by all of them.
  explicit PinnedMemory(Device device);

  std::string name() const override { return "pinned memory of " + DeviceName(of_); }
  Device device() const override { return Host(); }
  MemoryTraits traits() const override;
  std::byte* Reserve(size_t bytes) noexcept override;
  void Unreserve(std::byte* base, size_t bytes) noexcept override;
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override;
  // Memory goes as it came: whole commits.
  bool Decommit(std::byte* at, size_t bytes) noexcept override;
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override;
  void Release(std::byte* data, size_t bytes) noexcept override;
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override;
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override;
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override;
  void Fill(std::byte* to, std::byte value, size_t bytes) override;
  void ThrowIfLost(const std::string& who) override;

  size_t kept_bytes() const;  // free blocks in the pool
  // Gives them back; returns how many bytes. 0 while another thread is at the pool.
  int64_t Trim() noexcept;

 private:
  const Device of_;
  mutable std::mutex mutex_;
  std::map<std::byte*, size_t> committed_;
  std::map<size_t, std::vector<std::byte*>> kept_;  // by size
  size_t kept_bytes_ = 0;
  Reclaimer::Registration reclaimer_;  // last: its callback uses all of the above
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_PINNED_MEMORY_H_
