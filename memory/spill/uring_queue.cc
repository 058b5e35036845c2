#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"

namespace tidepool {
namespace {

constexpr uint64_t kWoken = UINT64_MAX;

class UringQueue final : public FileQueue {
 public:
  UringQueue(int descriptor, int depth) : descriptor_(descriptor) {
    event_ = eventfd(0, EFD_CLOEXEC);
    if (event_ < 0) return;
    // A place more, for whoever wakes it.
    has_ring_ = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring_, 0) == 0;
  }
  ~UringQueue() override {
    if (has_ring_) {
      while (under_way_ > 0 && Next().has_value()) {
      }
      io_uring_queue_exit(&ring_);
    }
    if (event_ >= 0) close(event_);
  }
  bool is_ready() const { return has_ring_; }

  void Submit(const FileTransfer& transfer) override {
    io_uring_sqe* const entry = Entry();
    const auto bytes = static_cast<unsigned>(transfer.bytes);
    const auto offset = static_cast<uint64_t>(transfer.offset);
    if (transfer.writes) {
      io_uring_prep_write(entry, descriptor_, transfer.data, bytes, offset);
    } else {
      io_uring_prep_read(entry, descriptor_, transfer.data, bytes, offset);
    }
    entry->user_data = transfer.tag;
    Flush();
    ++under_way_;
  }

  std::optional<Done> Wait() override {
    if (!listens_) {
      io_uring_sqe* const entry = Entry();
      io_uring_prep_read(entry, event_, &woken_, sizeof(woken_), 0);
      entry->user_data = kWoken;
      Flush();
      listens_ = true;
    }
    const std::optional<Done> done = Next();
    if (!done.has_value()) {
      ThrowInternal(absl::StrCat("io_uring: waiting failed with ", transfers_failed_, ", ",
                                 under_way_, " transfers are under way"));
    }
    if (done->tag != kWoken) return done;
    return std::nullopt;
  }

  void Wake() noexcept override {
    const uint64_t one = 1;
    // It can only fail where 2^64 - 1 are there, of which one wakes.
    [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof(one));
  }
  const char* name() const override { return "io_uring"; }

 private:
  // There is always one: no more are under way than were asked for.
  io_uring_sqe* Entry() {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) ThrowInternal("io_uring: more transfers at once than its depth");
    return entry;
  }
  void Flush() {
    int result = 0;
    do {
      result = io_uring_submit(&ring_);
    } while (result == -EINTR || result == -EAGAIN || result == -EBUSY);
    if (result < 0) ThrowErrno(-result, "io_uring: handing in a transfer");
  }
  // None: the ring failed, which transfers_failed_ has.
  std::optional<Done> Next() {
    io_uring_cqe* entry = nullptr;
    int result = 0;
    do {
      result = io_uring_wait_cqe(&ring_, &entry);
    } while (result == -EINTR || result == -EAGAIN);
    if (result < 0) {
      transfers_failed_ = result;
      return std::nullopt;
    }
    const Done done = {entry->user_data, entry->res};
    io_uring_cqe_seen(&ring_, entry);
    if (done.tag == kWoken) {
      listens_ = false;
    } else {
      --under_way_;
    }
    return done;
  }

  const int descriptor_;
  int event_ = -1;
  bool has_ring_ = false;
  io_uring ring_ = {};
  int under_way_ = 0;
  bool listens_ = false;  // a read of event_ is under way
  uint64_t woken_ = 0;
  int transfers_failed_ = 0;
};

}  // namespace

std::unique_ptr<FileQueue> NewUringQueue(int descriptor, int depth) {
  auto queue = std::make_unique<UringQueue>(descriptor, depth);
  if (!queue->is_ready()) return nullptr;
  return queue;
}

std::unique_ptr<FileQueue> NewFileQueue(int descriptor, int depth) {
  std::unique_ptr<FileQueue> queue = NewUringQueue(descriptor, depth);
  return queue != nullptr ? std::move(queue) : NewThreadQueue(descriptor, depth);
}

}  // namespace tidepool
