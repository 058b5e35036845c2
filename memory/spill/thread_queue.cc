#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"

namespace tidepool {
namespace {

class ThreadQueue final : public FileQueue {
 public:
  ThreadQueue(int descriptor, int depth) : descriptor_(descriptor) {
    waiting_.reserve(static_cast<size_t>(depth));  // so that no thread needs memory
    done_.reserve(static_cast<size_t>(depth));
    for (int i = 0; i < depth; ++i) {
      try {
        threads_.emplace_back([this] { Work(); });
      } catch (const std::system_error& error) {
        End();
        ThrowResourceExhausted(absl::StrCat("a queue of transfers to a file: thread ", i, " of ",
                                            depth, " was refused: ", error.what()));
      }
    }
  }
  ~ThreadQueue() override { End(); }

  void Submit(const FileTransfer& transfer) override {
    std::lock_guard lock(mutex_);
    waiting_.push_back(transfer);
    work_.notify_one();
  }
  std::optional<Done> Wait() override {
    std::unique_lock lock(mutex_);
    answer_.wait(lock, [&] { return woken_ || !done_.empty(); });
    if (done_.empty()) {
      woken_ = false;
      return std::nullopt;
    }
    const Done done = done_.front();
    done_.erase(done_.begin());
    return done;
  }
  void Wake() noexcept override {
    std::lock_guard lock(mutex_);
    woken_ = true;
    answer_.notify_one();
  }
  const char* name() const override { return "threads"; }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const FileTransfer transfer = waiting_.front();
      waiting_.erase(waiting_.begin());
      lock.unlock();
      ssize_t result = 0;
      do {
        result = transfer.writes
                     ? pwrite(descriptor_, transfer.data, transfer.bytes, transfer.offset)
                     : pread(descriptor_, transfer.data, transfer.bytes, transfer.offset);
      } while (result < 0 && errno == EINTR);
      const Done done = {transfer.tag, result < 0 ? -errno : result};
      lock.lock();
      done_.push_back(done);
      answer_.notify_one();
    }
  }
  void End() noexcept {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
      work_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable work_, answer_;
  std::vector<FileTransfer> waiting_;  // the first comes next
  std::vector<Done> done_;
  bool woken_ = false;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileQueue> NewThreadQueue(int descriptor, int depth) {
  return std::make_unique<ThreadQueue>(descriptor, depth);
}

}  // namespace tidepool
