// From a server's first page to its end.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/connection.h"
#include "tidepool/examples/digit_server/listener.h"
#include "tidepool/memory/error.h"

namespace tidepool {

thread_local const BoundedServer* BoundedServer::server_here_ = nullptr;

void CheckHttpLimits(const HttpLimits& limits) {
  const auto check = [](const char* name, int64_t value, int64_t most, const char* unit) {
    if (value >= 1 && value <= most) return;
    ThrowInvalidArgument(
        absl::StrCat("HTTP limits: ", name, " is ", value, unit, ", expected 1 to ", most));
  };
  check("connections", limits.connections, HttpLimits::kMostConnections, "");
  check("head_bytes", limits.head_bytes, HttpLimits::kMostHeadBytes, "");
  check("body_bytes", limits.body_bytes, HttpLimits::kMostBodyBytes, "");
  check("all_bodies_bytes", limits.all_bodies_bytes, HttpLimits::kMostBodyBytes, "");
  check("work_bytes", limits.work_bytes, HttpLimits::kMostBodyBytes, "");
  const auto check_time = [&](const char* name, std::chrono::milliseconds time) {
    check(name, time.count(), std::chrono::milliseconds(HttpLimits::kMostTime).count(), " ms");
  };
  check_time("request_time", limits.request_time);
  check_time("answer_time", limits.answer_time);
  check_time("idle_time", limits.idle_time);
  check_time("stop_time", limits.stop_time);
}

int BoundedServer::Start(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    ThrowInvalidArgument(absl::StrCat("digit server: port is ", port, ", expected 0 to 65535"));
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stage_ != Stage::kNew) {
      ThrowFailedPrecondition(
          "digit server: Start: found a server that has been started, expected a new one");
    }
    stage_ = Stage::kStarting;
  }
  absl::Cleanup starts_again = [this] { EnterStage(Stage::kNew); };
  listener_ = std::make_unique<Listener>(host, port, Backlog());
  const int its_port = listener_->port();
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!AddThread())
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    listening_ = true;
    listening_thread_ = std::thread([this] { Listen(); });
  } catch (const std::system_error& error) {
    listening_ = false;
    listener_.reset();
    EndThreads();
    threads_end_ = false;
    ThrowResourceExhausted(absl::StrCat("digit server: a thread to listen and one to answer: ",
                                        error.code().message()));
  }
  std::move(starts_again).Cancel();
  EnterStage(Stage::kStarted);
  return its_port;
}

void BoundedServer::Listen() {
  for (;;) {
    const int connection = listener_->Accept(
        [this] {
          const std::lock_guard<std::mutex> lock(mutex_);
          return ending_ > 0 || EndAnIdleConnection();
        },
        [this](int refused) { AnswerAtOnce(refused, 503, "too many open files"); });
    if (connection < 0) break;
    Enqueue(connection);
  }
  EndThreads();
  listening_ = false;
}

void BoundedServer::EnterStage(Stage stage) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stage_ = stage;
  }
  changed_.notify_all();
}

void BoundedServer::Stop() {
  if (server_here_ == this) {
    ThrowFailedPrecondition(
        "digit server: Stop: found a page's thread, which it would wait for; expected another one");
  }
  End(/*waits=*/true);
}

bool BoundedServer::TryStop() { return End(/*waits=*/false); }

bool BoundedServer::End(bool waits) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return stage_ != Stage::kStarting; });
  if (stage_ == Stage::kNew) return true;
  // One thread ends the answers, and one, maybe another, takes the server down.
  if (stage_ == Stage::kStarted) {
    stage_ = Stage::kStopping;
    lock.unlock();
    EndAnswers();
    lock.lock();
  }
  changed_.wait(lock, [this] { return cut_.load(); });
  if (waits) {
    changed_.wait(lock, [this] { return HasEnded(); });
  } else if (!changed_.wait_for(lock, limits_.stop_time, [this] { return HasEnded(); })) {
    return false;
  }
  if (stage_ == Stage::kStopping) {
    stage_ = Stage::kJoining;
    lock.unlock();
    listening_thread_.join();
    listener_.reset();
    EnterStage(Stage::kStopped);
    return true;
  }
  changed_.wait(lock, [this] { return stage_ == Stage::kStopped; });
  return true;
}

void BoundedServer::EndAnswers() {
  const auto until = Connection::Clock::now() + limits_.stop_time;
  int64_t last_of_backlog;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    // What has not arrived will not.
    for (auto& [connection, open] : open_) shutdown(connection->socket(), SHUT_RD);
    last_of_backlog = accepted_ + Backlog() + 1;
  }
  // Connections that the system has taken may have brought their requests; the listening thread
  // takes them in their order, so that those of clients that keep coming are not waited for.
  for (;;) {
    if (!listening_ || Connection::Clock::now() >= until || !listener_->HasWaiting()) break;
    if (const std::lock_guard<std::mutex> lock(mutex_); accepted_ > last_of_backlog) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  listener_->Shut();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_until(lock, until, [this] { return HasEnded(); });
    cut_ = true;
    if (on_cut_ != nullptr) on_cut_();
    for (auto& [connection, open] : open_) connection->ShutDown();
  }
  changed_.notify_all();
}

void BoundedServer::EndThreads() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_end_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace tidepool
