// CudaDevice: memory and streams of one CUDA device, as the provider of Device{kCuda, index}.
//
// Ranges: addresses reserved in the driver, memory mapped behind them piece by piece, so workspaces
// grow without moving and captured graphs stay valid. Committed in units of large_granularity the
// pieces are that large, else of the driver's granularity (2 MiB); giving back takes whole pieces.
// It waits for the queues first: the driver does not.
//
// Blocks come from the device's memory pool (cudaMallocAsync) in the order of the compute stream: a
// block given back is used again by what is queued after, nobody waits, and nothing is unmapped in
// mid-cycle. Blocks of the driver's own (cudaMalloc) would stop the device at each cudaFree; a pool of
// ours over mapped pages would have to do by itself what this one does. What the pool keeps beside the
// blocks in use is unreferenced memory in the ledger, as of the last block taken or given back; it is
// given back when anything is refused, and to the Reclaimer.
//
// Streams: one for kernels, in their order; two for copies, one each way. None waits for the
// default stream. Nothing here waits for the whole device.
//
// Errors: refusals of memory are null or false; other errors of the runtime are thrown as kInternal
// with the function's name and the runtime's text. Threads: any.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/pinned_memory.h"
#include "tidepool/backends/cuda/runtime/queue_points.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cuda {

class CudaDevice final : public DeviceProvider {
 public:
  // Null when there is no such device; WhyAbsent() says why. Made at the first call, never destroyed.
  static CudaDevice* Find(int index);
  // Of 0 and up: the runtime's words when no device can be used, or null.
  static std::string WhyAbsent();
  static int Count();
  // Whose memory `address` is in; throws kInvalidArgument when it is nobody's.
  static CudaDevice& OfAddress(const void* address);

  int index() const { return device_.index; }
  int multiprocessors() const { return multiprocessors_; }
  size_t total_bytes() const { return total_bytes_; }
  const std::string& model() const { return model_; }
  int capability() const { return capability_; }  // 90 for 9.0
  cudaStream_t compute() const { return compute_; }
  QueuePoints& points() { return points_; }
  PinnedMemory& pinned() { return pinned_; }

  // Makes it the calling thread's current device.
  void Activate() const;
  // What is queued on the compute stream from here on begins when the copies queued so far have passed.
  void JoinCopies() { ComputeAfterCopies(); }
  // While set, blocks given back are kept: freeing them would be captured.
  void set_capturing(bool capturing);
  bool capturing() const { return capturing_; }
  // What the pool keeps, as the ledger has it now.
  int64_t kept_bytes() const;

  std::string name() const override { return DeviceName(device_); }
  Device device() const override { return device_; }
  MemoryTraits traits() const override;
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
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                               QueuePoint after) override;
  QueuePoint QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                             QueuePoint after) override;
  QueuePoint ComputePoint() override;
  void ComputeAfter(QueuePoint point) override;
  bool HasPassed(QueuePoint point) override;
  void WaitFor(QueuePoint point) override;
  DeviceProvider* PinnedHost() override { return &pinned_; }

 private:
  static constexpr size_t kPoolAlignment = 256;

  explicit CudaDevice(int index);
  static CudaDevice* Make(int index);
  bool MapPiece(std::byte* at, size_t bytes) noexcept;
  void UnmapPieces(std::byte* at, size_t bytes) noexcept;  // needs mutex_
  void TrimPool() noexcept;
  void CountKept() noexcept;
  // Compute continues when the copies queued so far have passed, and the other way round.
  void ComputeAfterCopies();
  void CopiesAfterCompute();
  void FinishCompute();
  QueuePoint QueueCopy(cudaStream_t stream, std::atomic<uint64_t>& last, void* to, const void* from,
                       size_t bytes, cudaMemcpyKind kind, QueuePoint after);

  const Device device_;
  std::string model_;
  int multiprocessors_ = 1, capability_ = 0;
  size_t total_bytes_ = 0, granularity_ = 0;
  cudaStream_t compute_ = nullptr, from_host_ = nullptr, to_host_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  std::atomic<uint64_t> last_from_host_{0}, last_to_host_{0};  // points behind the copies
  std::atomic<bool> capturing_{false};
  QueuePoints points_;
  PinnedMemory pinned_;
  MemoryCharge charge_;  // what the runtime and its libraries took when they started

  std::mutex mutex_;
  std::map<std::byte*, size_t> pieces_;
  std::map<std::byte*, std::byte*> shifted_;  // blocks aligned further than the pool does
  std::vector<std::byte*> kept_;              // given back while capturing

  mutable std::mutex kept_mutex_;
  int64_t kept_counted_ = 0;         // on the ledger
  Reclaimer::Registration reclaimer_;  // last: its callback uses all of the above
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_
