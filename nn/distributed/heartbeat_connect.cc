// How the heartbeats of a job's ranks find each other: rank 0 listens, all others connect.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/distributed/heartbeat_watch.h"

namespace tidepool::nn {
namespace {

using std::chrono::milliseconds;

std::string NewCookie() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8),
                      absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
}

// "port cookie address address ...", of rank 0.
void TellWhere(Communicator& communicator, std::string* where) {
  constexpr size_t kMost = 4096;
  std::array<std::byte, kMost> bytes = {};
  std::memcpy(bytes.data(), where->data(), std::min(where->size(), kMost - 1));
  communicator.Broadcast(absl::MakeSpan(bytes), 0, "heartbeat's address");
  *where = reinterpret_cast<const char*>(bytes.data());
}

std::optional<Error> FailureOf(absl::FunctionRef<void()> work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

Heartbeat::Watch::Watch(Communicator& communicator, HeartbeatConfig config)
    : communicator_(communicator),
      config_(std::move(config)),
      rank_(communicator.rank()),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      seen_(static_cast<size_t>(communicator.size())),
      changed_(Clock::now()) {
  Descriptor listener;
  std::string where;
  std::optional<Error> failure = FailureOf([&] {
    if (wake_.get() < 0) ThrowErrno(errno, "heartbeat: eventfd");
    int port = 0;
    if (rank_ != 0) return;
    listener = ListenAnywhere(&port);
    where = absl::StrCat(port, " ", NewCookie(), " ", absl::StrJoin(AddressesOfThisMachine(), " "));
  });
  // All come to the collectives, whatever happens here. A broadcast may leave rank 0 before others
  // have come, who may still be reading their data.
  TellWhere(communicator, &where);
  communicator.Barrier("heartbeat's ranks");
  if (!failure.has_value()) {
    failure = FailureOf([&] {
      std::vector<std::string> words = absl::StrSplit(where, ' ');
      if (words.size() < 2) ThrowFailedPrecondition("heartbeat: rank 0 has no port, as said there");
      const int port = std::atoi(words[0].c_str());
      const std::string cookie = words[1];
      words.erase(words.begin(), words.begin() + 2);
      rank_ == 0 ? Listen(std::move(listener), cookie) : ConnectToRank0(words, port, cookie);
    });
  }
  std::array<double, 2> failed = {failure.has_value() ? 1.0 : 0.0,
                                  failure.has_value() ? static_cast<double>(rank_) : 0};
  communicator.AllReduce(absl::MakeSpan(failed), "heartbeat's connections");
  if (failure.has_value()) throw Error(*failure);
  if (failed[0] > 0) {
    throw Error(absl::StatusCode::kUnavailable,
                absl::StrCat("heartbeat: ", failed[0], " ranks have no connection, as said there"));
  }
  changed_ = Clock::now();
  for (Peer& peer : peers_) peer.heard = changed_;
  try {
    thread_ = std::thread(&Watch::Loop, this);
  } catch (const std::system_error& error) {
    ThrowResourceExhausted(
        absl::StrCat("heartbeat: the system has no thread: ", error.code().message()));
  }
}

void Heartbeat::Watch::Listen(Descriptor listener, const std::string& cookie) {
  const Clock::time_point until = Clock::now() + config_.patience;
  std::vector<std::unique_ptr<HeartbeatLink>> strangers;
  const auto others = static_cast<size_t>(communicator_.size()) - 1;
  while (peers_.size() < others) {
    std::vector<pollfd> waits = {{listener.get(), POLLIN, 0}};
    for (const auto& stranger : strangers) waits.push_back({stranger->descriptor(), POLLIN, 0});
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    if (left <= 0) {
      throw Error(absl::StatusCode::kUnavailable,
                  absl::StrCat("heartbeat: ", peers_.size(), " of ", others,
                               " ranks have connected within ", config_.patience.count(), " ms"));
    }
    poll(waits.data(), waits.size(), static_cast<int>(left));
    for (size_t i = strangers.size(); i-- > 0;) {
      if (waits[i + 1].revents == 0) continue;
      bool is_ours = false;
      int rank = 0;
      const bool is_open = strangers[i]->Receive([&](const Frame& frame) {
        is_ours = frame.kind == FrameKind::kHello && frame.text == cookie && frame.rank > 0 &&
                  frame.rank < communicator_.size();
        rank = frame.rank;
      });
      for (const Peer& peer : peers_) is_ours = is_ours && peer.rank != rank;
      if (is_ours) peers_.push_back({.rank = rank, .link = std::move(strangers[i])});
      if (is_ours || !is_open) strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if ((waits[0].revents & POLLIN) == 0) continue;
    const int come = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (come >= 0) strangers.push_back(std::make_unique<HeartbeatLink>(Descriptor(come)));
  }
}

void Heartbeat::Watch::ConnectToRank0(const std::vector<std::string>& addresses, int port,
                                      const std::string& cookie) {
  // Those of this machine first, which one that rank 0 has as well may be: the quickest, and the
  // one that a firewall lets pass.
  std::vector<std::string> order = addresses;
  std::vector<std::string> mine = AddressesOfThisMachine();
  const bool is_here = std::any_of(mine.begin(), mine.end() - 1, [&](const std::string& address) {
    return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
  });
  if (is_here || addresses.size() == 1) std::rotate(order.begin(), order.end() - 1, order.end());
  for (const std::string& address : order) {
    Descriptor connected = Connect(address, port, config_.patience / 4);
    if (connected.get() < 0) continue;
    auto link = std::make_unique<HeartbeatLink>(std::move(connected));
    if (!link->Send(FrameKind::kHello, rank_, MyProgress(), cookie)) continue;
    peers_.push_back({.rank = 0, .link = std::move(link)});
    return;
  }
  throw Error(absl::StatusCode::kUnavailable,
              absl::StrCat("heartbeat: rank ", rank_, " cannot reach rank 0 at port ", port, " of ",
                           absl::StrJoin(addresses, ", ")));
}
}  // namespace tidepool::nn
