// A queue of a spill file whose transfers fail as a test says.
#ifndef TIDEPOOL_NDARRAY_SPILL_FAILING_QUEUE_H_
#define TIDEPOOL_NDARRAY_SPILL_FAILING_QUEUE_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tidepool/memory/spill/file_queue.h"

namespace tidepool {

class FailingQueue final : public FileQueue {
 public:
  // `error_of`: what a transfer that is submitted ends with, EIO for example; 0: what `queue` makes of it.
  FailingQueue(std::unique_ptr<FileQueue> queue, std::function<int(const FileTransfer&)> error_of)
      : queue_(std::move(queue)), error_of_(std::move(error_of)) {}
  void Submit(const FileTransfer& transfer) override {
    const int error = error_of_(transfer);
    if (error == 0) return queue_->Submit(transfer);
    failed_.push_back({transfer.tag, -error});
    queue_->Wake();
  }
  std::optional<Done> Wait() override {
    if (failed_.empty()) {
      std::optional<Done> done = queue_->Wait();
      if (done.has_value() || failed_.empty()) return done;
    }
    const Done done = failed_.back();
    failed_.pop_back();
    return done;
  }
  void Wake() noexcept override { queue_->Wake(); }
  const char* name() const override { return "failing"; }

 private:
  const std::unique_ptr<FileQueue> queue_;
  const std::function<int(const FileTransfer&)> error_of_;
  std::vector<Done> failed_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_FAILING_QUEUE_H_
