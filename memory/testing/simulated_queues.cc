#include "tidepool/memory/testing/simulated_queues.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool {

void SimulatedQueues::Start(uint64_t seed) {
  Stop();
  std::lock_guard<std::mutex> lock(mutex_);
  random_.seed(seed);
  running_ = true;
  stopping_ = false;
  for (Queue queue : {kCompute, kCopies}) workers_.emplace_back([this, queue] { Serve(queue); });
}

void SimulatedQueues::Stop() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!running_) return;
    for (const Work& work : pending_) Want(work.point);
    while (!pending_.empty()) changed_.wait(lock);
    stopping_ = true;
    running_ = false;
    compute_after_.clear();
    failure_.clear();
    changed_.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

bool SimulatedQueues::running() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_;
}

std::list<SimulatedQueues::Work>::iterator SimulatedQueues::Find(uint64_t point) {
  return std::find_if(pending_.begin(), pending_.end(),
                      [&](const Work& work) { return work.point == point; });
}

// Points it waits for are of earlier work, so this ends.
void SimulatedQueues::Want(uint64_t point) {
  const auto wanted = Find(point);
  if (wanted == pending_.end() || wanted->wanted) return;
  wanted->wanted = true;
  for (uint64_t after : wanted->after) Want(after);
  if (wanted->queue == kCompute) {
    for (auto work = pending_.begin(); work != wanted; ++work) {
      if (work->queue == kCompute) Want(work->point);
    }
  }
  changed_.notify_all();
}

uint64_t SimulatedQueues::Add(Queue queue, std::vector<Range> ranges, uint64_t after,
                              std::function<void()> run) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!running_) {
    lock.unlock();
    run();
    return 0;
  }
  std::vector<uint64_t> before = {after};
  if (queue == kCompute) {
    before.insert(before.end(), compute_after_.begin(), compute_after_.end());
    compute_after_.clear();
  }
  pending_.push_back({++last_point_, queue, std::move(ranges), std::move(before), std::move(run),
                      random_() % 8 == 0});
  const uint64_t point = last_point_;
  if (pending_.size() > kMostPending) Want(pending_.front().point);
  changed_.notify_all();
  return point;
}

uint64_t SimulatedQueues::ComputePoint() {
  bool after_copies;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    after_copies = !compute_after_.empty();
  }
  if (after_copies) return Add(kCompute, {}, 0, [] {});
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto work = pending_.rbegin(); work != pending_.rend(); ++work) {
    if (work->queue == kCompute) return work->point;
  }
  return 0;
}

void SimulatedQueues::ComputeAfter(uint64_t point) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (Find(point) != pending_.end()) compute_after_.push_back(point);
}

bool SimulatedQueues::HasPassed(uint64_t point) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Find(point) == pending_.end();
}

void SimulatedQueues::Wait(std::unique_lock<std::mutex>& lock, uint64_t point) {
  Want(point);
  while (Find(point) != pending_.end()) changed_.wait(lock);
}

void SimulatedQueues::ThrowFailure() {
  if (failure_.empty()) return;
  ThrowInternal("simulated device: queued work failed: " + std::exchange(failure_, ""));
}

void SimulatedQueues::WaitFor(uint64_t point) {
  std::unique_lock<std::mutex> lock(mutex_);
  Wait(lock, point);
  ThrowFailure();
}

void SimulatedQueues::WaitForAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t last = last_point_;
  while (!pending_.empty() && pending_.front().point <= last) Wait(lock, pending_.front().point);
  ThrowFailure();
}

void SimulatedQueues::WaitForUsersOf(Range range) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<uint64_t> users;
  for (const Work& work : pending_) {
    for (const Range& used : work.ranges) {
      if (used.begin < range.end && range.begin < used.end) users.push_back(work.point);
    }
  }
  for (uint64_t point : users) Wait(lock, point);
}

bool SimulatedQueues::IsUsed(Range range) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Work& work : pending_) {
    for (const Range& used : work.ranges) {
      if (used.begin < range.end && range.begin < used.end) return true;
    }
  }
  return false;
}

// Kernels in order; of the copies that may begin, any one.
std::list<SimulatedQueues::Work>::iterator SimulatedQueues::Next(Queue queue) {
  std::vector<std::list<Work>::iterator> ready;
  for (auto work = pending_.begin(); work != pending_.end(); ++work) {
    if (work->queue != queue || work->begun) continue;
    const bool free = std::all_of(work->after.begin(), work->after.end(),
                                  [&](uint64_t point) { return Find(point) == pending_.end(); });
    if ((work->wanted || work->eager) && free) ready.push_back(work);
    if (queue == kCompute) break;
  }
  return ready.empty() ? pending_.end() : ready[random_() % ready.size()];
}

void SimulatedQueues::Serve(Queue queue) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const auto work = Next(queue);
    if (work == pending_.end()) {
      if (stopping_) return;
      changed_.wait(lock);
      continue;
    }
    work->begun = true;
    const bool dawdle = random_() % 4 == 0;
    lock.unlock();
    if (dawdle) std::this_thread::yield();
    std::string failure;
    try {
      work->run();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    work->run = nullptr;  // what it holds may wait for this mutex
    lock.lock();
    if (!failure.empty()) failure_ = std::move(failure);
    pending_.erase(work);
    changed_.notify_all();
  }
}

}  // namespace tidepool
