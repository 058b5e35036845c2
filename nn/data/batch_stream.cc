#include "tidepool/nn/data/batch_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

WorkspaceConfig ConfigOf(int64_t count, int prefetch, int kept) {
  if (count < 0 || prefetch < 1 || kept < 1 || prefetch > BatchStream::kMostSlots - kept) {
    ThrowInvalidArgument(absl::StrCat("batch stream: found count ", count, ", prefetch ", prefetch,
                                      " and kept ", kept,
                                      "; expected at least 0, 1 and 1, and prefetch + kept at most ",
                                      BatchStream::kMostSlots));
  }
  // Readers that keep more get temporary slots.
  WorkspaceConfig config = WorkspaceConfig::Ring(prefetch + kept);
  config.policy_ring_full = RingFullPolicy::kSpill;
  return config;
}

}  // namespace

BatchStream::BatchStream(int64_t count, StoppableMake make, int prefetch, int kept)
    : count_(count),
      prefetch_(static_cast<size_t>(prefetch)),
      make_(std::move(make)),
      ring_("batches", ConfigOf(count, prefetch, kept)),
      producer_([this](const std::stop_token& stop) { Produce(stop); }) {}

BatchStream::~BatchStream() {
  producer_.request_stop();
  producer_.join();
}

void BatchStream::Produce(const std::stop_token& stop) {
  std::exception_ptr error;
  try {
    for (int64_t i = 0; i < count_; ++i) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, stop, [this] { return ready_.size() < prefetch_; });
      }
      if (stop.stop_requested()) break;
      std::optional<RingSlotScope> slot = RingSlotScope::Open(ring_, stop);
      if (!slot.has_value()) break;
      Batch batch = make_(i, stop);
      if (stop.stop_requested()) break;
      // What another stream made may still have arrays in that one's slot.
      if (batch.lease) batch.earlier_leases.push_back(std::move(batch.lease));
      batch.lease = slot->Commit();
      std::lock_guard<std::mutex> lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  error_ = std::move(error);
  changed_.notify_all();
}

std::optional<Batch> BatchStream::Next() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || done_; });
  if (ready_.empty()) {
    if (error_ != nullptr) std::rethrow_exception(error_);
    return std::nullopt;
  }
  std::optional<Batch> batch = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return batch;
}

int64_t BatchStream::waiting() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(ready_.size());
}

}  // namespace tidepool::nn
