#include "tidepool/memory/testing/simulated_queues.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
}

void SimulatedQueues::Stop() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!running_) return;
    for (const Work& work : pending_) Want(work.point);
    while (!pending_.empty()) changed_.wait(lock);
    stopping_ = true;
    running_ = false;
    for (std::vector<uint64_t>& after : compute_after_) after.clear();
    std::fill_n(last_of_, kMostQueues, 0);
    std::fill_n(has_worker_, kMostQueues + 1, false);
    order_.Clear();
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

void SimulatedQueues::set_checks_order(bool checks) {
  std::lock_guard<std::mutex> lock(mutex_);
  checks_order_ = checks;
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
  if (wanted->queue != kCopies) {
    for (auto work = pending_.begin(); work != wanted; ++work) {
      if (work->queue == wanted->queue) Want(work->point);
    }
  }
  changed_.notify_all();
}

uint64_t SimulatedQueues::Add(int queue, std::vector<Range> ranges, uint64_t after,
                              std::function<void()> run) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (running_) return AddLocked(queue, std::move(ranges), after, std::move(run));
  lock.unlock();
  run();
  return 0;
}

uint64_t SimulatedQueues::AddLocked(int queue, std::vector<Range> ranges, uint64_t after,
                                    std::function<void()> run) {
  if (!has_worker_[queue]) {
    has_worker_[queue] = true;
    workers_.emplace_back([this, queue] { Serve(queue); });
  }
  const uint64_t point = ++last_point_;
  std::vector<uint64_t> before = {after};
  std::vector<uint64_t> ordered = {after};
  if (queue != kCopies) {
    std::vector<uint64_t>& points = compute_after_[queue];
    before.insert(before.end(), points.begin(), points.end());
    points.clear();
    ordered = before;
    ordered.push_back(std::exchange(last_of_[queue], point));
  }
  if (const std::string race = order_.Add(point, ordered, ranges); checks_order_ && !race.empty()) {
    std::fprintf(stderr, "simulated device: in queue %d%s: %s; neither comes after the other\n", queue,
                 queue == kCopies ? " (copies)" : "", race.c_str());
    std::abort();
  }
  pending_.push_back(
      {point, queue, std::move(ranges), std::move(before), std::move(run), random_() % 8 == 0});
  if (pending_.size() > kMostPending) Want(pending_.front().point);
  changed_.notify_all();
  return point;
}

uint64_t SimulatedQueues::ComputePoint(int queue) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) return 0;
  // Behind the copies that its next kernel waits for, too.
  if (!compute_after_[queue].empty()) return AddLocked(queue, {}, 0, [] {});
  const uint64_t last = last_of_[queue];
  return HasPassedLocked(last) ? 0 : last;
}

void SimulatedQueues::ComputeAfter(int queue, uint64_t point) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (running_ && point != 0) compute_after_[queue].push_back(point);
}

// What has been seen to have passed is before all that comes.
bool SimulatedQueues::HasPassedLocked(uint64_t point) {
  if (Find(point) != pending_.end()) return false;
  order_.Done(point);
  return true;
}

bool SimulatedQueues::HasPassed(uint64_t point) {
  std::lock_guard<std::mutex> lock(mutex_);
  return HasPassedLocked(point);
}

void SimulatedQueues::Wait(std::unique_lock<std::mutex>& lock, uint64_t point) {
  Want(point);
  while (!HasPassedLocked(point)) changed_.wait(lock);
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
  // Also what was done before anybody waited for it.
  for (uint64_t point = last - std::min(last, uint64_t{QueueOrder::kMostKept}) + 1; point <= last; ++point) {
    order_.Done(point);
  }
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
  order_.Release(range);
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

bool SimulatedQueues::Release(Range range) {
  if (IsUsed(range)) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  if (checks_order_ && order_.IsUsed(range)) return false;
  order_.Release(range);
  return true;
}

// Kernels of one queue in order; of the copies that may begin, any one.
std::list<SimulatedQueues::Work>::iterator SimulatedQueues::Next(int queue) {
  std::vector<std::list<Work>::iterator> ready;
  for (auto work = pending_.begin(); work != pending_.end(); ++work) {
    if (work->queue != queue || work->begun) continue;
    const bool free = std::all_of(work->after.begin(), work->after.end(),
                                  [&](uint64_t point) { return Find(point) == pending_.end(); });
    if ((work->wanted || work->eager) && free) ready.push_back(work);
    if (queue != kCopies) break;
  }
  return ready.empty() ? pending_.end() : ready[random_() % ready.size()];
}

void SimulatedQueues::Serve(int queue) {
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
