// CudaDevice: memory and streams of one CUDA device, as the provider of Device{kCuda, index}.
//
// Ranges: addresses reserved in the driver, memory mapped behind them piece by piece, so workspaces
// grow without moving and captured graphs stay valid. Committed in units of large_granularity the
// pieces are that large, else of the driver's granularity (2 MiB); giving back takes whole pieces.
// It waits for the queues first: the driver does not.
//
// Blocks come from a memory pool of the device's that is ours (cudaMallocFromPoolAsync) in the order of a stream of their own, in which
// nothing is ever waited for: so a new block is there at once, for compute queues and copies alike. One that is
// released is kept with the points behind what uses it (memory/provider/kept_blocks.h), nobody waits, and it
// goes back to the pool when they have passed. Blocks of the driver's own (cudaMalloc) would stop the device
// at each cudaFree; blocks in the order of a compute queue would have the first copy into each wait for all
// that is queued there. What is kept, and what the pool keeps beside its blocks, is unreferenced memory in the
// ledger, that of the pool as of the last block it gave or took; it is given back when anything is
// refused, and to the Reclaimer.
//
// Streams: one for each compute queue (device_queue.h; a queue that was adopted is the caller's stream); three
// for copies, one each way and one to other devices; one for blocks. Ours do not wait for the default stream. Nothing here waits for the whole device.
//
// Errors: refusals of memory are null or false, and where the driver's reason was another one than lack of memory
// ThrowIfLost says it to the thread that asks next (refusal.h); other errors of the runtime are thrown as kInternal
// with the function's name and the runtime's text; sticky ones are the device's loss (device_loss.h). Threads: any.
#ifndef TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_
#define TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/last_copy.h"
#include "tidepool/backends/cuda/runtime/pinned_memory.h"
#include "tidepool/backends/cuda/runtime/queue_points.h"
#include "tidepool/backends/cuda/runtime/stream_capture.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/host_copies_together.h"
#include "tidepool/memory/provider/kept_blocks.h"
#include "tidepool/memory/sync/std_sync.h"

namespace tidepool::cuda {

class CudaDevice final : public DeviceProvider,
                         public HostCopiesTogether,
                         public KeptBlocks::Source {
 public:
  // Null when there is no such device; WhyAbsent() says why. Made at the first call, never destroyed.
  static CudaDevice* Find(int index);
  // Of 0 and up: the runtime's words when no device can be used, or null.
  static std::string WhyAbsent();
  static int Count();

  int index() const { return device_.index; }
  int multiprocessors() const { return multiprocessors_; }
  size_t total_bytes() const { return total_bytes_; }
  const std::string& model() const { return model_; }
  int capability() const { return capability_; }  // 90 for 9.0
  // Of an open compute queue; for a thread that captures what it queues there the stream that captures (stream_capture.h).
  cudaStream_t compute(int queue = 0) const {
    if (newest_capture != nullptr) [[unlikely]]
      return ComputeWhileCapturing(queue);
    return streams_[queue].load(std::memory_order_acquire);
  }
  QueuePoints& points() { return points_; }
  PinnedMemory& pinned() { return pinned_; }

  // Makes it the calling thread's current device.
  void Activate() const;
  // What is queued in that compute queue from here on begins when the copies queued so far have passed.
  void JoinCopies(int queue) { ComputeAfterCopies(queue); }
  // Whether the calling thread captures what it queues somewhere on the device.
  bool capturing() const {
    return newest_capture != nullptr && StreamCapture::Of(*this) != nullptr;
  }
  // Why memory is not copied to `there` directly; empty: it is, and this device may access all of its memory from here
  // on. Any thread.
  std::string WhyNoPeer(CudaDevice& there);
  // What memory/device_copy.h asks for.
  QueuePoint QueueCopyToPeer(CudaDevice& there, int queue_there, std::byte* to,
                             const std::byte* from, size_t bytes, QueuePoint after,
                             QueuePoint after_there);
  // A block of the same pool in the order of a stream of the caller's, which has no tail: for others that have their memory
  // here (backends/cuda/torch). Null as Allocate's, after what is kept has gone. Neither changes the thread's queue.
  std::byte* AllocateInStream(size_t bytes, cudaStream_t stream) noexcept;
  void ReleaseInStream(std::byte* data, cudaStream_t stream) noexcept;
  KeptBlocks& blocks() { return *blocks_; }
  // What is kept of blocks, and by the pool, as the ledger has it now.
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
  void ReleaseMany(const Block* blocks, int count) noexcept override;
  bool NoteUsers(const std::byte* data, uint32_t queues) noexcept override {
    blocks_->NoteUsers(data, queues);
    return true;
  }
  void CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) override;
  void CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) override;
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override;
  void Fill(std::byte* to, std::byte value, size_t bytes) override;
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                               QueuePoint after) override;
  QueuePoint QueueCopiesFromHost(absl::Span<const Copy> copies,
                                 absl::Span<const QueuePoint> after) override;
  QueuePoint QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                             QueuePoint after) override;
  void OpenQueue(int queue, void* native) override;
  void CloseQueue(int queue) noexcept override;
  void* NativeQueue(int queue) override { return compute(queue); }
  bool IsCapturing(int queue) const override;
  QueuePoint EarlierUses(const std::byte* data, size_t) override {
    return blocks_->EarlierUses(data);
  }
  QueuePoint ComputePoint(int queue) override;
  void ComputeAfter(int queue, QueuePoint point) override;
  bool HasPassed(QueuePoint point) override;
  void WaitFor(QueuePoint point) override;
  void ThrowIfLost(const std::string& who) override;
  DeviceProvider* PinnedHost() override { return &pinned_; }

  std::byte* TakeBlock(size_t bytes, QueuePoint* from) noexcept override;
  void GiveBlock(std::byte* data, size_t bytes) noexcept override;
  void FinishAll() noexcept override { FinishQueues(); }

 private:
  friend class StreamCapture;
  static constexpr size_t kPoolAlignment = 256;

  // `used_before`: bytes of the device in use before it had a context of this process; -1: unknown.
  CudaDevice(int index, int64_t used_before);
  static CudaDevice* Make(int index);
  // The memory of a piece, and of those to come, and of the pool. Empty, or what refused it.
  bool LetAccess(std::byte* at, size_t bytes, int device) const noexcept;
  std::string LetPeer(int device);
  bool NotePiece(std::byte* at, size_t bytes) noexcept;  // these three need mutex_
  bool MapPiece(std::byte* at, size_t bytes) noexcept;
  void UnmapPieces(std::byte* at, size_t bytes) noexcept;
  // What is kept of blocks first; `wait`: for what uses them. Not while capturing.
  void TrimPool(bool wait) noexcept;
  void CountKept() noexcept;
  // The queue continues when the copies queued so far have passed.
  void ComputeAfterCopies(int queue);
  // What is done at once comes after all that is queued, in the thread's queue, and is waited for.
  template <typename Work>
  void DoNow(const char* call, const Work& work);
  // All open ones, and the copies.
  void FinishQueues() noexcept;
  cudaStream_t ComputeWhileCapturing(int queue) const noexcept;
  // For StreamCapture: streams that nothing else is queued in, and which of the callers' own are captured.
  bool IsOurs(int queue);
  cudaStream_t TakeCaptureStream();
  void GiveCaptureStream(cudaStream_t stream) noexcept;
  void SetAdoptedCaptured(int queue, bool captured) noexcept;
  // In one call where the driver has that.
  void CopyTogether(absl::Span<const Copy> copies);
  using Last = LastCopy<StdSync, QueuePoint>;
  QueuePoint PointBehindCopy(cudaStream_t stream, Last& last);
  QueuePoint QueueCopy(cudaStream_t stream, Last& last, void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind, QueuePoint after);

  const Device device_;
  std::string model_;
  int multiprocessors_ = 1, capability_ = 0;
  size_t total_bytes_ = 0, granularity_ = 0;
  std::atomic<cudaStream_t> streams_[kMostQueues] = {};  // of open compute queues
  bool is_ours_[kMostQueues] = {};
  std::mutex streams_mutex_;  // of opening, closing and waiting for all of them
  std::vector<QueuePoint>
      ended_;  // behind the work of queues that were closed, which may be under way
  cudaStream_t from_host_ = nullptr, to_host_ = nullptr, to_peers_ = nullptr, of_blocks_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  Last last_from_host_, last_to_host_, last_to_peers_;  // behind the copies
  std::atomic<bool> blocks_on_their_way_{false};        // to the pool
  std::atomic<uint32_t> adopted_captured_{0};           // compute queues, a bit each
  std::vector<cudaStream_t> capture_streams_;           // unused ones; streams_mutex_
  QueuePoints points_;
  PinnedMemory pinned_;
  MemoryCharge charge_;  // what the context and the runtime took when they started

  std::mutex mutex_;
  std::map<std::byte*, size_t> pieces_;
  uint32_t peers_ = 0;  // devices that may access all memory, a bit each

  mutable std::mutex kept_mutex_;
  int64_t kept_counted_ = 0;  // by the pool, on the ledger
  std::unique_ptr<KeptBlocks> blocks_;
  Reclaimer::Registration reclaimer_;  // last: its callback uses all of the above
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_RUNTIME_CUDA_DEVICE_H_
