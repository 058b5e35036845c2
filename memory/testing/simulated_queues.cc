#include "tidepool/memory/testing/simulated_queues.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool {

void SimulatedQueues::Start(uint64_t seed, int device) {
  Stop(device);
  std::lock_guard<std::mutex> lock(mutex_);
  random_.seed(seed);
  running_[device] = true;
  stopping_[device] = false;
}

void SimulatedQueues::Stop(int device) {
  const int first = device * kOfOneDevice;
  const auto is_of_it = [=](const Work& work) { return work.queue / kOfOneDevice == device; };
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!running_[device]) return;
    for (const Work& work : pending_) {
      if (is_of_it(work)) Want(work.point);
    }
    while (std::any_of(pending_.begin(), pending_.end(), is_of_it)) changed_.wait(lock);
    stopping_[device] = true;
    running_[device] = false;
    for (int queue = first; queue < first + kOfOneDevice; ++queue) {
      compute_after_[queue].clear();
      last_of_[queue] = 0;
      has_worker_[queue] = false;
    }
    DoneAll(device);
    if (std::none_of(running_, running_ + kDevices, [](bool running) { return running; }))
      order_.Clear();
    failure_[device].clear();
    changed_.notify_all();
  }
  for (std::thread& worker : workers_[device]) worker.join();
  workers_[device].clear();
}

bool SimulatedQueues::running(int device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return running_[device];
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
  if (!IsOfCopies(wanted->queue)) {
    for (auto work = pending_.begin(); work != wanted; ++work) {
      if (work->queue == wanted->queue) Want(work->point);
    }
  }
  changed_.notify_all();
}

uint64_t SimulatedQueues::Add(int queue, std::vector<Range> ranges, std::vector<uint64_t> after,
                              std::function<void()> run) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (running_[queue / kOfOneDevice]) {
    return AddLocked(queue, std::move(ranges), std::move(after), std::move(run));
  }
  for (const uint64_t point : after) Wait(lock, point);  // another device's
  lock.unlock();
  run();
  return 0;
}

uint64_t SimulatedQueues::AddLocked(int queue, std::vector<Range> ranges,
                                    std::vector<uint64_t> after, std::function<void()> run) {
  const int device = queue / kOfOneDevice;
  const uint64_t point = last_point_ + 1;
  // Whatever may find no memory comes first: nothing is queued then, and nothing waits for it.
  std::vector<uint64_t> before = std::move(after);
  if (!IsOfCopies(queue)) {
    const std::vector<uint64_t>& points = compute_after_[queue];
    before.insert(before.end(), points.begin(), points.end());
  }
  std::vector<uint64_t> ordered = before;
  if (!IsOfCopies(queue)) ordered.push_back(last_of_[queue]);
  std::list<Work> added;
  added.push_back(
      {point, queue, std::move(ranges), std::move(before), std::move(run), /*eager=*/false});
  if (!has_worker_[queue]) {
    workers_[device].emplace_back([this, queue] { Serve(queue); });
    has_worker_[queue] = true;
  }
  const std::string race = order_.Add(point, ordered, added.front().ranges);
  last_point_ = point;
  device_of_[point % QueueOrder::kMostKept] = device;
  if (!IsOfCopies(queue)) {
    compute_after_[queue].clear();
    last_of_[queue] = point;
  }
  if (checks_order_ && !race.empty()) {
    std::fprintf(stderr, "simulated device %d: in queue %d%s: %s; neither comes after the other\n",
                 device, queue % kOfOneDevice, IsOfCopies(queue) ? " (copies)" : "", race.c_str());
    std::abort();
  }
  added.front().eager = random_() % 8 == 0;
  pending_.splice(pending_.end(), added);
  if (pending_.size() > kMostPending) Want(pending_.front().point);
  changed_.notify_all();
  return point;
}

uint64_t SimulatedQueues::ComputePoint(int queue) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_[queue / kOfOneDevice]) return 0;
  // Behind the copies that its next kernel waits for, too.
  if (!compute_after_[queue].empty()) return AddLocked(queue, {}, {}, [] {});
  const uint64_t last = last_of_[queue];
  return HasPassedLocked(last) ? 0 : last;
}

void SimulatedQueues::ComputeAfter(int queue, uint64_t point) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (point == 0) return;
  if (!running_[queue / kOfOneDevice]) return Wait(lock, point);  // another device's
  compute_after_[queue].push_back(point);
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

void SimulatedQueues::ThrowFailure(int device) {
  if (failure_[device].empty()) return;
  ThrowInternal("simulated device: queued work failed: " + std::exchange(failure_[device], ""));
}

void SimulatedQueues::WaitFor(uint64_t point) {
  std::unique_lock<std::mutex> lock(mutex_);
  Wait(lock, point);
  ThrowFailure(device_of_[point % QueueOrder::kMostKept]);
}

void SimulatedQueues::DoneAll(int device) {
  const uint64_t last = last_point_;
  for (uint64_t point = last - std::min(last, uint64_t{QueueOrder::kMostKept}) + 1; point <= last;
       ++point) {
    if (device_of_[point % QueueOrder::kMostKept] == device && Find(point) == pending_.end())
      order_.Done(point);
  }
}

void SimulatedQueues::WaitForAll(int device) {
  std::unique_lock<std::mutex> lock(mutex_);
  std::vector<uint64_t> points;
  for (const Work& work : pending_) {
    if (work.queue / kOfOneDevice == device) points.push_back(work.point);
  }
  // And that of other devices which its next kernels come behind.
  for (int queue = device * kOfOneDevice; queue < (device + 1) * kOfOneDevice; ++queue) {
    points.insert(points.end(), compute_after_[queue].begin(), compute_after_[queue].end());
  }
  for (const uint64_t point : points) Wait(lock, point);
  // Also what was done before anybody waited for it.
  DoneAll(device);
  ThrowFailure(device);
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
    if (!IsOfCopies(queue)) break;
  }
  return ready.empty() ? pending_.end() : ready[random_() % ready.size()];
}

void SimulatedQueues::Serve(int queue) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    const auto work = Next(queue);
    if (work == pending_.end()) {
      if (stopping_[queue / kOfOneDevice]) return;
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
    if (!failure.empty()) failure_[queue / kOfOneDevice] = std::move(failure);
    pending_.erase(work);
    changed_.notify_all();
  }
}

}  // namespace tidepool
