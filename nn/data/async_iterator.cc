#include "tidepool/nn/data/async_iterator.h"

#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/error_context.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool::nn {
namespace {

const AsyncOptions& Checked(const AsyncOptions& options) {
  const auto [prefetch, producers, kept] =
      std::tuple(options.prefetch, options.producers, options.kept);
  if (prefetch < 1 || kept < 1 || prefetch > AsyncOptions::kMostSlots - kept || producers < 1 ||
      producers > AsyncOptions::kMostProducers) {
    ThrowInvalidArgument(absl::StrCat(
        "asynchronous iterator: found prefetch ", prefetch, ", kept ", kept, " and producers ",
        producers, "; expected at least 1 each, prefetch + kept at most ", AsyncOptions::kMostSlots,
        ", producers at most ", AsyncOptions::kMostProducers));
  }
  // A producer must never wait for a slot (RingConfig).
  if (options.ring != nullptr) {
    const WorkspaceConfig& ring = options.ring->config();
    if (ring.policy_ring_full != RingFullPolicy::kSpill || ring.ring_max_temporary != 0 ||
        ring.ring_max_kept != 0) {
      ThrowInvalidArgument(absl::StrCat(
          "asynchronous iterator: ring \"", OneLine(options.ring->id()), "\": found ",
          ring.policy_ring_full != RingFullPolicy::kSpill
              ? std::string("one whose full slots are waited for")
              : absl::StrCat("at most ", ring.ring_max_temporary, " temporary and ",
                             ring.ring_max_kept, " kept slots (0: any number)"),
          ", expected one of AsyncOptions::RingConfig(), which makes temporary slots (kSpill), any "
          "number of them"));
    }
  }
  return options;
}

}  // namespace

WorkspaceConfig AsyncOptions::RingConfig() const {
  WorkspaceConfig config = WorkspaceConfig::Ring(prefetch + kept);
  // Readers that keep more get temporary slots. A producer must never wait for a slot: the one
  // before it in order could be waiting as well while later batches hold all of them.
  config.policy_ring_full = RingFullPolicy::kSpill;
  // A plan for each kind of batch. With one for all, which several producers' batches of different
  // lengths keep replacing, slots never came to have a size that serves all of them.
  config.policy_learning = LearningPolicy::kTraining;
  if (device != Host()) config.policy_mirroring = MirroringPolicy::kHostOnly;
  return config;
}

template <typename Set>
AsyncIterator<Set>::AsyncIterator(Iterator<Set>& base, const AsyncOptions& options)
    : base_(base),
      options_(Checked(options)),
      by_index_(base.goes_by_index()),
      epoch_(options.first_epoch) {
  if (!base.allows_prefetch()) return;
  ring_ = options_.ring;
  if (ring_ == nullptr)
    ring_ = &own_ring_.emplace(options_.name, options_.RingConfig(), options_.device);
  ready_.resize(static_cast<size_t>(options_.prefetch));
  producers_.reserve(static_cast<size_t>(options_.producers));
  try {
    for (int i = 0; i < options_.producers; ++i) producers_.emplace_back([this] { Produce(); });
  } catch (const std::system_error& error) {
    const size_t started = producers_.size();
    EndThreads();
    ThrowResourceExhausted(absl::StrCat(options_.name, ": the system has no thread for producer ",
                                        started, " of ", options_.producers, ": ",
                                        error.code().message()));
  } catch (...) {
    EndThreads();
    throw;
  }
}

template <typename Set>
AsyncIterator<Set>::~AsyncIterator() {
  EndThreads();
}

template <typename Set>
void AsyncIterator<Set>::EndThreads() {
  if (producers_.empty()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    is_ending_ = true;
    StopMaking(lock);
  }
  for (std::thread& producer : producers_) producer.join();
}

// Nothing is being made when it returns.
template <typename Set>
void AsyncIterator<Set>::StopMaking(std::unique_lock<std::mutex>& lock) {
  is_stopped_ = true;
  changed_.notify_all();
  // Callbacks of the token are a source's: not under the lock.
  lock.unlock();
  stop_.request_stop();
  lock.lock();
  changed_.wait(lock, [this] { return making_ == 0; });
}

template <typename Set>
void AsyncIterator<Set>::Produce() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] {
      return is_ending_ ||
             (!is_stopped_ && !asking_ && begun_ < end_ && begun_ - taken_ < options_.prefetch);
    });
    if (is_ending_) return;
    MakeOne(lock);
  }
}

template <typename Set>
void AsyncIterator<Set>::MakeOne(std::unique_lock<std::mutex>& lock) {
  const int64_t batch = begun_++;
  const std::stop_token stop = stop_.get_token();
  asking_ = true;
  ++making_;
  bool asks = true;
  lock.unlock();
  std::optional<Set> made;
  std::exception_ptr error;
  try {
    made = MakeBatch(stop, asks);
  } catch (...) {
    // Sources may throw the same one to several producers, and in each epoch.
    error = WithContext(std::current_exception(),
                        absl::StrCat(options_.name, ": batch ", batch, " of epoch ", epoch_));
  }
  if (stop.stop_requested()) made.reset();
  lock.lock();
  --making_;
  if (asks) asking_ = false;
  if (made.has_value()) {
    ready_[static_cast<size_t>(batch % options_.prefetch)].swap(made);
  } else if (!stop.stop_requested() && batch < end_) {
    end_ = batch;
    error_ = std::move(error);
    failed_batch_ = batch;
  }
  changed_.notify_all();
}

// `asks`: still has base_ to itself.
template <typename Set>
std::optional<Set> AsyncIterator<Set>::MakeBatch(const std::stop_token& stop, bool& asks) {
  int64_t index = 0;
  if (by_index_) {
    const std::optional<int64_t> claimed = base_.Claim();
    if (!claimed.has_value()) return std::nullopt;
    index = *claimed;
    std::lock_guard<std::mutex> lock(mutex_);
    asking_ = asks = false;
    changed_.notify_all();
  }
  std::optional<RingSlotScope> slot = RingSlotScope::Open(*ring_, stop);
  if (!slot.has_value()) return std::nullopt;
  std::optional<Set> made;
  if (by_index_) {
    made.emplace(base_.Make(index, stop));
  } else {
    made = base_.Next(stop);
  }
  if (!made.has_value() || stop.stop_requested()) return std::nullopt;
  // What another iterator made ahead may still have arrays in that one's slot.
  if (made->lease) made->earlier_leases.push_back(std::move(made->lease));
  made->lease = slot->Commit();
  return made;
}

// Nothing is made ahead, and failures are those of what is.
template <typename Set>
std::optional<Set> AsyncIterator<Set>::AskBase(const std::stop_token& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
  const int64_t batch = taken_, epoch = epoch_;
  lock.unlock();
  std::exception_ptr error;
  try {
    std::optional<Set> made = base_.Next(stop);
    lock.lock();
    taken_ += made.has_value();
    return made;
  } catch (...) {
    error = WithContext(std::current_exception(),
                        absl::StrCat(options_.name, ": batch ", batch, " of epoch ", epoch));
  }
  if (stop.stop_requested()) std::rethrow_exception(error);  // of the wish to stop, perhaps
  lock.lock();
  end_ = failed_batch_ = batch;
  error_ = error;
  lock.unlock();
  std::rethrow_exception(error);
}

template <typename Set>
std::optional<Set> AsyncIterator<Set>::NextBatch(const std::stop_token& stop) {
  if (ring_ == nullptr) return AskBase(stop);
  std::unique_lock<std::mutex> lock(mutex_);
  std::optional<Set>* next = nullptr;
  const bool is_there = changed_.wait(lock, stop, [&] {
    next = &ready_[static_cast<size_t>(taken_ % options_.prefetch)];
    return taken_ >= end_ || next->has_value();
  });
  if (!is_there) return std::nullopt;  // `stop`
  if (taken_ >= end_) {
    if (error_ != nullptr) std::rethrow_exception(error_);
    return std::nullopt;
  }
  std::optional<Set> batch = std::move(*next);
  next->reset();
  ++taken_;
  changed_.notify_all();
  return batch;
}

template <typename Set>
void AsyncIterator<Set>::Reset() {
  std::vector<std::optional<Set>> unwanted(ready_.size());
  std::stop_source stop;
  std::unique_lock<std::mutex> lock(mutex_);
  StopMaking(lock);
  unwanted.swap(ready_);
  lock.unlock();
  unwanted.clear();
  std::exception_ptr error;
  try {
    base_.Reset();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  begun_ = taken_ = 0;
  end_ = error != nullptr ? 0 : kNoEnd;
  error_ = error;
  failed_batch_ = -1;
  ++epoch_;
  std::swap(stop_, stop);
  is_stopped_ = false;
  changed_.notify_all();
  if (error != nullptr) std::rethrow_exception(error);
}

template <typename Set>
int64_t AsyncIterator<Set>::waiting() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t count = 0;
  for (int64_t batch = taken_; batch < end_ && batch < taken_ + static_cast<int64_t>(ready_.size());
       ++batch) {
    count += ready_[static_cast<size_t>(batch % options_.prefetch)].has_value();
  }
  return count;
}

template <typename Set>
std::optional<int64_t> AsyncIterator<Set>::failed_batch() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (error_ == nullptr || taken_ < end_) return std::nullopt;
  return failed_batch_;
}

template <typename Set>
RingStats AsyncIterator<Set>::ring_stats() const {
  return ring_ != nullptr ? ring_->stats() : RingStats();
}

template class AsyncIterator<DataSet>;
template class AsyncIterator<MultiDataSet>;

}  // namespace tidepool::nn
