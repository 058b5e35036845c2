#include "tidepool/nn/distributed/communicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/nn/distributed/collectives.h"

namespace tidepool::nn {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Pending::~Pending() {
  if (communicator_ != nullptr) communicator_->Await(*this, /*throws=*/false);
}

void Pending::Wait() {
  if (communicator_ != nullptr) communicator_->Await(*this, /*throws=*/true);
}

std::unique_ptr<Communicator> Communicator::Open(const std::string& transport) {
  return std::make_unique<Communicator>([transport] { return OpenTransport(transport); });
}

Communicator::Communicator(std::function<std::unique_ptr<Transport>()> open) {
  std::exception_ptr refused;
  try {
    thread_ = std::thread([this, open = std::move(open), &refused] {
      try {
        Loop(open);
      } catch (...) {
        // Only before it was opened, while the constructor waits.
        const std::lock_guard<std::mutex> lock(mutex_);
        refused = std::current_exception();
        opened_ = true;
        ended_.notify_all();
      }
    });
  } catch (const std::system_error& error) {
    ThrowResourceExhausted(absl::StrCat(
        "distributed: the system has no thread for the communicator: ", error.code().message()));
  }
  {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [&] { return opened_; });
  }
  if (refused == nullptr) return;
  thread_.join();
  std::rethrow_exception(refused);
}

Communicator::~Communicator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  queued_.notify_all();
  thread_.join();
}

void Communicator::Loop(const std::function<std::unique_ptr<Transport>()>& open) {
  const std::unique_ptr<Transport> transport = open();
  Collectives collectives(*transport);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    rank_ = transport->rank();
    size_ = transport->size();
    device_ = transport->device();
    transport_ = transport.get();
    collectives_ = &collectives;
    opened_ = true;
  }
  ended_.notify_all();
  Serve();
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_sent_ = collectives.bytes_sent();
  messages_sent_ = collectives.messages_sent();
  collectives_ = nullptr;
  transport_ = nullptr;
}

void Communicator::Serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    queued_.wait(lock, [&] { return first_ != nullptr || stop_; });
    Pending* const pending = first_;
    if (pending == nullptr) return;
    if (!failure_.has_value()) {
      const CollectiveCall& call = pending->call_;
      log_[static_cast<size_t>(call.sequence) % kLogged] = {call,
                                                            step_.load(std::memory_order_relaxed)};
      begun_.store(call.sequence, std::memory_order_relaxed);
      lock.unlock();
      const Clock::time_point begin = Clock::now();
      std::optional<Error> error;
      try {
        if (!collectives_->Run(call))
          error.emplace(absl::StatusCode::kAborted, "distributed: interrupted");
      } catch (const Error& thrown) {
        error = thrown;
      } catch (const std::exception& thrown) {
        error.emplace(absl::StatusCode::kInternal, thrown.what());
      }
      lock.lock();
      busy_seconds_ += SecondsSince(begin);
      if (!error.has_value()) {
        done_.store(call.sequence, std::memory_order_relaxed);
      } else if (!failure_.has_value()) {
        error->AddContext(
            absl::StrCat("rank ", rank_, " of ", size_, ", collective ", call.sequence));
        failure_ = std::move(error);
      }
    }
    first_ = pending->next_;
    if (first_ == nullptr) last_ = nullptr;
    pending->done_ = true;
    ended_.notify_all();
  }
}

void Communicator::ThrowIfFailed() const {
  if (failure_.has_value()) throw Error(*failure_);
}

void Communicator::CheckMoves(const CollectiveCall& call) const {
  const Device device = call.elements.device;
  if (device == Host() || device == device_) return;
  ThrowUnimplemented(absl::StrCat(
      "distributed: ", CollectiveKindName(call.kind), " [", call.site, "] of memory of ",
      DeviceName(device), ", expected that of the host",
      device_ == Host() ? ": the transport moves no memory of devices, which \"nccl\" does"
                        : absl::StrCat(" or of ", DeviceName(device_))));
}

void Communicator::Enqueue(Pending& pending) {
  CheckMoves(pending.call_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ThrowIfFailed();
    pending.call_.sequence = ++sequence_;
    pending.communicator_ = this;
    pending.done_ = false;
    pending.next_ = nullptr;
    (last_ != nullptr ? last_->next_ : first_) = &pending;
    last_ = &pending;
  }
  queued_.notify_one();
}

void Communicator::Await(Pending& pending, bool throws) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!pending.done_) {
    const Clock::time_point begin = Clock::now();
    ended_.wait(lock, [&] { return pending.done_; });
    waited_seconds_ += SecondsSince(begin);
  }
  pending.communicator_ = nullptr;
  if (throws && done_.load(std::memory_order_relaxed) < pending.call_.sequence) ThrowIfFailed();
}

void Communicator::Start(CollectiveKind kind, Elements elements, Pending& pending,
                         const char* site) {
  if (pending.communicator_ != nullptr) {
    ThrowFailedPrecondition(
        absl::StrCat("distributed: ", CollectiveKindName(kind), " [", site,
                     "] is started with what has not been waited for, expected Wait() before"));
  }
  pending.call_ = {kind, elements, 0, site, 0};
  Enqueue(pending);
}

void Communicator::Run(const CollectiveCall& call) {
  Pending pending;
  pending.call_ = call;
  Enqueue(pending);
  pending.Wait();
}

void Communicator::Broadcast(Elements elements, int root, const char* site) {
  Run({CollectiveKind::kBroadcast, elements, root, site, 0});
}

void Communicator::Abort(const Error& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failure_.has_value()) failure_ = reason;
  if (transport_ != nullptr) transport_->Interrupt();
}

std::optional<Error> Communicator::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

CommunicatorStats Communicator::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  CommunicatorStats stats;
  stats.collectives = done_.load(std::memory_order_relaxed);
  stats.bytes_sent = collectives_ != nullptr ? collectives_->bytes_sent() : bytes_sent_;
  stats.messages_sent = collectives_ != nullptr ? collectives_->messages_sent() : messages_sent_;
  stats.busy_seconds = busy_seconds_;
  stats.waited_seconds = waited_seconds_;
  return stats;
}

RankProgress Communicator::Progress() const {
  return {step_.load(std::memory_order_relaxed), begun_.load(std::memory_order_relaxed),
          done_.load(std::memory_order_relaxed)};
}

std::vector<CollectiveRecord> Communicator::Log() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<CollectiveRecord> records;
  const int64_t last = begun_.load(std::memory_order_relaxed);
  for (int64_t sequence = std::max<int64_t>(1, last - static_cast<int64_t>(kLogged) + 1);
       sequence <= last; ++sequence) {
    const Logged& logged = log_[static_cast<size_t>(sequence) % kLogged];
    records.push_back({logged.call.sequence, logged.step, logged.call.elements.count,
                       logged.call.kind, logged.call.elements.type, logged.call.site});
  }
  return records;
}

}  // namespace tidepool::nn
