#include "abacus/work_queue.h"

#include <exception>
#include <thread>
#include <utility>

namespace abacus {

WorkQueue::~WorkQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    Piece& piece = pieces_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      piece.work();
    } catch (...) {
      failure = std::current_exception();
    }
    piece.work = nullptr;
    lock.lock();
    if (failure_ == nullptr) failure_ = std::move(failure);
    pieces_.pop_front();
    ++done_;
    changed_.notify_all();
  }
}

uint64_t WorkQueue::Add(std::vector<ByteExtent> uses, std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { Serve(); });
  pieces_.push_back({std::move(uses), std::move(work)});
  changed_.notify_all();
  return done_ + pieces_.size();
}

uint64_t WorkQueue::last() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ + pieces_.size();
}

bool WorkQueue::IsDone(uint64_t ticket) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return done_ >= ticket;
}

void WorkQueue::Await(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
}

void WorkQueue::AwaitUsersOf(ByteExtent bytes) {
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t user = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    for (const ByteExtent& used : pieces_[i].uses) {
      if (used.begin < bytes.end && bytes.begin < used.end) user = done_ + i + 1;
    }
  }
  changed_.wait(lock, [&] { return done_ >= user; });
}

std::string WorkQueue::TakeFailure() {
  std::exception_ptr failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure == nullptr) return "";
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "something that is no std::exception was thrown";
  }
}

}  // namespace abacus
