// FileQueue: several transfers between page-aligned memory and a file at once.
//
//   std::unique_ptr<FileQueue> queue = NewFileQueue(descriptor, /*depth=*/8);
//   queue->Submit({.tag = 1, .writes = true, .data = block, .bytes = 1 << 20, .offset = 0});
//   while (const auto done = queue->Wait()) Use(done->tag, done->result);   // until Wake()
//
// By io_uring where the kernel and its limits allow it, else by threads that read and write at
// offsets, one for each transfer of the depth. A transfer may move fewer bytes than asked for.
//
// Ownership: the descriptor stays the caller's; memory of a transfer must stay until it is done. The
// destructor waits for transfers under way. Threads: one at a time, but Wake(): any.
#ifndef TIDEPOOL_MEMORY_SPILL_FILE_QUEUE_H_
#define TIDEPOOL_MEMORY_SPILL_FILE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace tidepool {

struct FileTransfer {
  uint64_t tag = 0;  // any but UINT64_MAX
  bool writes = false;
  std::byte* data = nullptr;
  size_t bytes = 0;  // at most 1 GiB
  int64_t offset = 0;
};

class FileQueue {
 public:
  struct Done {
    uint64_t tag = 0;
    int64_t result = 0;  // bytes, or a negative errno
  };

  virtual ~FileQueue() = default;
  // At most `depth` of them are under way at a time.
  virtual void Submit(const FileTransfer& transfer) = 0;
  // The next one that is done. None: somebody called Wake() since the last time that none was
  // returned. Throws kInternal where the kernel's queue fails.
  virtual std::optional<Done> Wait() = 0;
  virtual void Wake() noexcept = 0;
  virtual const char* name() const = 0;  // "io_uring", "threads"

 protected:
  FileQueue() = default;
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;
};

// Null: there is no io_uring here (an old kernel, a container that forbids it, no locked memory left).
std::unique_ptr<FileQueue> NewUringQueue(int descriptor, int depth);
// Throws kResourceExhausted where the system refuses a thread.
std::unique_ptr<FileQueue> NewThreadQueue(int descriptor, int depth);
// The first of these two that there is.
std::unique_ptr<FileQueue> NewFileQueue(int descriptor, int depth);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_FILE_QUEUE_H_
