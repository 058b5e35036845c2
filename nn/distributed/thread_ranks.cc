#include "tidepool/nn/distributed/thread_ranks.h"

#include <cstring>
#include <exception>
#include <system_error>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

class ThreadRanks::OneRank final : public Transport {
 public:
  OneRank(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return all_.size_; }
  bool Run(const Exchange& exchange) override;
  void Interrupt() noexcept override {
    const std::lock_guard<std::mutex> lock(all_.mutex_);
    interrupted_ = true;
    all_.changed_.notify_all();
  }

 private:
  ThreadRanks& all_;
  const int rank_;
  bool interrupted_ = false;  // guarded by the mutex
};

bool ThreadRanks::OneRank::Run(const Exchange& exchange) {
  std::unique_lock<std::mutex> lock(all_.mutex_);
  bool sends = exchange.to >= 0, posted = false, takes = exchange.from >= 0;
  Mail* const out = sends ? &all_.From(rank_, exchange.to) : nullptr;
  Mail* const in = takes ? &all_.From(exchange.from, rank_) : nullptr;
  while (sends || takes) {
    if (interrupted_) {
      if (posted && out->is_there) *out = Mail();  // the bytes are the caller's again
      return false;
    }
    bool moved = false;
    if (sends && !posted && !out->is_there) {
      *out = {exchange.out, exchange.out_bytes, exchange.tag, true};
      posted = moved = true;
    }
    if (sends && posted && !out->is_there) {
      sends = false;
      moved = true;
    }
    if (takes && in->is_there && in->tag == exchange.tag) {
      const size_t found = in->bytes;
      if (found == exchange.in_bytes && found > 0) std::memcpy(exchange.in, in->data, found);
      *in = Mail();
      takes = false;
      moved = true;
      if (found != exchange.in_bytes) {
        if (posted && out->is_there) *out = Mail();
        all_.changed_.notify_all();
        ThrowDataLoss(absl::StrCat("distributed: rank ", exchange.from, " sent ", found,
                                   " bytes, expected ", exchange.in_bytes));
      }
    }
    if (moved) {
      all_.changed_.notify_all();
    } else {
      all_.changed_.wait(lock);
    }
  }
  return true;
}

ThreadRanks::ThreadRanks(int size) : size_(size) {
  if (size < 1)
    ThrowInvalidArgument(absl::StrCat("thread ranks: ", size, " ranks, expected at least 1"));
  mail_.resize(static_cast<size_t>(size) * static_cast<size_t>(size));
}

std::unique_ptr<Transport> ThreadRanks::Open(int rank) {
  return std::make_unique<OneRank>(*this, rank);
}

void ThreadRanks::Run(absl::FunctionRef<void(Communicator&)> body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<Communicator*> open(static_cast<size_t>(size_));
  // Within a handler: what it handles is what all end by.
  const auto fail = [&](int rank, const char* why) {
    const Error told(absl::StatusCode::kAborted, absl::StrCat("rank ", rank, " failed: ", why));
    const std::lock_guard<std::mutex> lock(mutex);
    if (first != nullptr) return;
    first = std::current_exception();
    for (Communicator* const other : open) {
      if (other != nullptr) other->Abort(told);
    }
  };
  const auto run = [&](int rank) {
    try {
      Communicator communicator([&] { return Open(rank); });
      Communicator*& mine = open[static_cast<size_t>(rank)];
      {
        const std::lock_guard<std::mutex> lock(mutex);
        mine = &communicator;
        if (first != nullptr)
          communicator.Abort(
              Error(absl::StatusCode::kAborted, "thread ranks: another rank has failed"));
      }
      const absl::Cleanup leave = [&] {
        const std::lock_guard<std::mutex> lock(mutex);
        mine = nullptr;
      };
      try {
        body(communicator);
      } catch (const std::exception& error) {
        fail(rank, error.what());
      } catch (...) {
        fail(rank, "an exception of an unknown type");
      }
    } catch (const std::exception& error) {
      fail(rank, error.what());  // it has no communicator
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    try {
      try {
        threads.emplace_back(run, rank);
      } catch (const std::system_error& error) {
        ThrowResourceExhausted(absl::StrCat("thread ranks: the system has no thread for rank ",
                                            rank, " of ", size_, ": ", error.code().message()));
      }
    } catch (const Error& error) {
      fail(rank, error.what());
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tidepool::nn
