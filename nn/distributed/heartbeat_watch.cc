#include "tidepool/nn/distributed/heartbeat_watch.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/collective_alignment.h"

namespace tidepool::nn {
namespace {

using std::chrono::milliseconds;

// For a log: more than a network takes.
constexpr milliseconds kLogPatience{1000};

std::string SecondsText(milliseconds time) {
  return absl::StrCat(static_cast<double>(time.count()) / 1000, " s");
}

std::string PlaceText(const RankProgress& progress) {
  return absl::StrCat("last heard of at step ", progress.step, ", with collective ", progress.done,
                      " done");
}

}  // namespace

Heartbeat::Watch::~Watch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

void Heartbeat::Watch::Wake() noexcept {
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) continue;
}

std::string Heartbeat::Watch::verdict() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return verdict_;
}

void Heartbeat::Watch::Fail(const std::string& message) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (!verdict_.empty() || stop_) return;
  failure_ = message;
  Wake();
  // The process may end next.
  told_.wait_for(lock, 2 * kLogPatience, [&] { return failure_told_; });
}

void Heartbeat::Watch::AwaitVerdict() {
  std::unique_lock<std::mutex> lock(mutex_);
  told_.wait_for(lock, std::min(config_.patience, config_.limit),
                 [&] { return !verdict_.empty(); });
}

void Heartbeat::Watch::Loop() {
  Clock::time_point next = Clock::now();
  for (;;) {
    std::string failure;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!verdict_.empty()) break;
      // Nobody but rank 0 notices what becomes of the others.
      if (stop_ && (rank_ != 0 || !HasPeers())) break;
      if (!failure_told_) failure = failure_;
    }
    if (!failure.empty()) {
      const std::string cause = absl::StrCat("rank ", rank_, " failed: ", failure);
      if (rank_ == 0) {
        EndJob(cause);
        continue;
      }
      if (peers_[0].link != nullptr)
        peers_[0].link->Send(FrameKind::kFailed, rank_, MyProgress(), failure);
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_told_ = true;
      told_.notify_all();
    }
    if (Clock::now() >= next) {
      Beat();
      next = Clock::now() + config_.interval;
    }
    PollPeers(next);
    Judge();
  }
  for (Peer& peer : peers_) {
    if (peer.link != nullptr) peer.link->Send(FrameKind::kBye, rank_, MyProgress());
  }
}

bool Heartbeat::Watch::HasPeers() const {
  for (const Peer& peer : peers_) {
    if (peer.link != nullptr) return true;
  }
  return false;
}

void Heartbeat::Watch::PollPeers(Clock::time_point until) {
  while (verdict().empty()) {
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
    for (const Peer& peer : peers_)
      waits.push_back({peer.link != nullptr ? peer.link->descriptor() : -1, POLLIN, 0});
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    if (left <= 0 || poll(waits.data(), waits.size(), static_cast<int>(left)) == 0) return;
    for (size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      if (peer.link == nullptr || waits[i + 1].revents == 0) continue;
      const bool is_open = peer.link->Receive([&](const Frame& frame) { Take(peer, frame); });
      if (!cause_.empty()) return EndJob(cause_);
      if (is_open && !peer.said_bye) continue;
      peer.link.reset();
      if (peer.said_bye) return;  // it may have been the last one
      const std::string cause = absl::StrCat(
          "rank ", peer.rank, " has died (its connection is closed), ", PlaceText(peer.progress));
      rank_ == 0 ? EndJob(cause) : Declare(cause + MyLastCollective());
      return;
    }
    if (waits[0].revents != 0) {
      uint64_t count;
      while (read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) continue;
      return;
    }
  }
}

void Heartbeat::Watch::Take(Peer& peer, const Frame& frame) {
  peer.heard = Clock::now();
  peer.progress = frame.progress;
  switch (frame.kind) {
    case FrameKind::kAskLog:
      peer.link->Send(FrameKind::kLog, rank_, MyProgress(), FormatLog(communicator_.Log()));
      break;
    case FrameKind::kFailed:
      // The link is being read: the job ends behind that.
      if (rank_ == 0) cause_ = absl::StrCat("rank ", peer.rank, " failed: ", frame.text);
      break;
    case FrameKind::kVerdict:
      if (rank_ != 0) Declare(frame.text);
      break;
    case FrameKind::kBye:
      peer.said_bye = true;
      break;
    case FrameKind::kBeat:
    case FrameKind::kLog:
    case FrameKind::kHello:
      break;
  }
}

void Heartbeat::Watch::Beat() {
  for (Peer& peer : peers_) {
    if (peer.link != nullptr) peer.link->Send(FrameKind::kBeat, rank_, MyProgress());
  }
}

void Heartbeat::Watch::Judge() {
  const Clock::time_point now = Clock::now();
  if (!verdict().empty()) return;
  for (const Peer& peer : peers_) {
    if (peer.link == nullptr || now - peer.heard <= config_.limit) continue;
    const std::string cause =
        absl::StrCat("nothing was heard of rank ", peer.rank, " for ", SecondsText(config_.limit),
                     ": it is stopped, or its machine is gone; ", PlaceText(peer.progress));
    rank_ == 0 ? EndJob(cause) : Declare(cause + MyLastCollective());
    return;
  }
  if (rank_ != 0) return;
  std::vector<RankProgress> here(seen_.size());
  here[0] = MyProgress();
  for (const Peer& peer : peers_) here[static_cast<size_t>(peer.rank)] = peer.progress;
  bool waits = false, came_on = false;
  for (size_t r = 0; r < here.size(); ++r) {
    waits = waits || here[r].begun > here[r].done;
    came_on = came_on || here[r].begun != seen_[r].begun || here[r].done != seen_[r].done;
  }
  seen_ = std::move(here);
  if (came_on || !waits) changed_ = now;
  if (now - changed_ > config_.limit) EndJob(CauseOfStall());
}

std::string Heartbeat::Watch::CauseOfStall() {
  int64_t furthest = 0, step = 0;
  for (const RankProgress& progress : seen_) {
    furthest = std::max(furthest, progress.begun);
    step = std::max(step, progress.step);
  }
  std::vector<std::string> behind;
  for (size_t r = 0; r < seen_.size(); ++r) {
    if (seen_[r].begun < furthest) behind.push_back(absl::StrCat("rank ", r));
  }
  if (behind.empty())
    return absl::StrCat("the ranks have waited for each other for ", SecondsText(config_.limit),
                        " at step ", step);
  constexpr size_t kMost = 8;
  const bool is_cut = behind.size() > kMost;
  const size_t more = behind.size() - kMost;
  if (is_cut) behind.resize(kMost);
  return absl::StrCat(
      absl::StrJoin(behind, ", "), is_cut ? absl::StrCat(" and ", more, " more") : "",
      behind.size() == 1 ? " has" : " have", " not come to collective ", furthest, " at step ",
      step, ", where others have waited for ", SecondsText(config_.limit));
}

std::string Heartbeat::Watch::MyLastCollective() const {
  const std::vector<CollectiveRecord> log = communicator_.Log();
  if (log.empty()) return "";
  const RankProgress progress = MyProgress();
  const std::string of_all = LastOfAll({log}, {progress.done});
  return absl::StrCat(of_all.empty() ? "" : "; ", of_all, "; this rank ",
                      progress.begun > progress.done ? "was in " : "had done ",
                      log.back().ToString());
}

void Heartbeat::Watch::EndJob(std::string cause) {
  if (!verdict().empty()) return;
  for (Peer& peer : peers_) {
    peer.log.reset();
    if (peer.link != nullptr && !peer.link->Send(FrameKind::kAskLog, 0, MyProgress()))
      peer.link.reset();
  }
  // No recursion: what else is wrong now follows from this.
  const Clock::time_point until = Clock::now() + std::min(kLogPatience, config_.limit);
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<Peer*> whose;
    for (Peer& peer : peers_) {
      if (peer.link == nullptr || peer.log.has_value()) continue;
      waits.push_back({peer.link->descriptor(), POLLIN, 0});
      whose.push_back(&peer);
    }
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    if (waits.empty() || left <= 0 || poll(waits.data(), waits.size(), static_cast<int>(left)) <= 0)
      break;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      const bool is_open = whose[i]->link->Receive([&](const Frame& frame) {
        if (frame.kind != FrameKind::kLog) return;
        whose[i]->progress = frame.progress;
        whose[i]->log = ParseLog(frame.text);
      });
      if (!is_open) whose[i]->link.reset();
    }
  }
  std::vector<std::optional<std::vector<CollectiveRecord>>> logs(
      static_cast<size_t>(communicator_.size()));
  logs[0] = communicator_.Log();
  std::vector<int64_t> done(logs.size(), MyProgress().done);
  bool all_say = true;
  for (Peer& peer : peers_) {
    const auto rank = static_cast<size_t>(peer.rank);
    all_say = all_say && peer.log.has_value();
    done[rank] = peer.progress.done;
    logs[rank] = std::move(peer.log);
  }
  // One that is gone was last heard of some time ago, and has come further since.
  if (const std::string of_all = all_say ? "" : LastOfAll(logs, done); !of_all.empty())
    absl::StrAppend(&cause, "; ", of_all);
  std::string difference = FirstDifference(logs);
  if (difference.empty()) {
    // A rank that is gone has not said where it was: the others' last collective is the first that
    // it did not end.
    for (const auto& log : logs) {
      if (log.has_value() && !log->empty())
        difference = absl::StrCat("the others were in ", log->back().ToString());
    }
  }
  const std::string verdict =
      absl::StrCat("distributed: ", cause, difference.empty() ? "" : "; ", difference);
  Declare(verdict);
}

void Heartbeat::Watch::Declare(const std::string& verdict) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!verdict_.empty()) return;
    verdict_ =
        verdict.rfind("distributed: ", 0) == 0 ? verdict : absl::StrCat("distributed: ", verdict);
  }
  // Said before others end, as their end may be this process's.
  try {
    if (config_.on_verdict) config_.on_verdict(this->verdict());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "heartbeat: on_verdict has thrown: %s; %s\n", error.what(),
                 this->verdict().c_str());
  } catch (...) {
    std::fprintf(stderr, "heartbeat: on_verdict has thrown; %s\n", this->verdict().c_str());
  }
  if (rank_ == 0) {
    for (Peer& peer : peers_) {
      if (peer.link != nullptr)
        peer.link->Send(FrameKind::kVerdict, 0, MyProgress(), this->verdict());
    }
  }
  communicator_.Abort(Error(absl::StatusCode::kUnavailable, this->verdict()));
  const std::lock_guard<std::mutex> lock(mutex_);
  failure_told_ = true;
  told_.notify_all();
}

}  // namespace tidepool::nn
