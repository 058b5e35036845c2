#include "tidepool/nn/distributed/heartbeat_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

constexpr uint32_t kMagic = 0x54504842;  // "TPHB"

struct Header {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint32_t bytes = 0;
  int32_t rank = 0;
  int64_t step = 0, begun = 0, done = 0;
};

}  // namespace

Descriptor::~Descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

HeartbeatLink::HeartbeatLink(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
  const int flags = fcntl(descriptor_.get(), F_GETFL);
  fcntl(descriptor_.get(), F_SETFL, flags | O_NONBLOCK);
  const int on = 1;
  setsockopt(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

bool HeartbeatLink::Send(FrameKind kind, int rank, const RankProgress& progress,
                         absl::string_view text) noexcept {
  text = text.substr(0, kMostText);
  Header header;
  header.kind = static_cast<uint32_t>(kind);
  header.bytes = static_cast<uint32_t>(text.size());
  header.rank = rank;
  header.step = progress.step;
  header.begun = progress.begun;
  header.done = progress.done;
  // Both at once, so that a frame is there or not; a part of one would spoil all that come behind
  // it.
  const iovec parts[2] = {{&header, sizeof(header)}, {const_cast<char*>(text.data()), text.size()}};
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = 2;
  const auto whole = static_cast<ssize_t>(sizeof(header) + text.size());
  ssize_t sent;
  do {
    sent = sendmsg(descriptor_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == whole;
}

bool HeartbeatLink::Receive(absl::FunctionRef<void(const Frame&)> take) {
  bool is_open = true;
  for (;;) {
    char buffer[4096];
    const ssize_t got = recv(descriptor_.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      is_open = false;
      break;
    }
    come_.insert(come_.end(), buffer, buffer + got);
    if (come_.size() > 2 * (kMostText + sizeof(Header)))
      break;  // the rest stays with the system until these are taken
  }
  size_t at = 0;
  while (come_.size() - at >= sizeof(Header)) {
    Header header;
    std::memcpy(&header, come_.data() + at, sizeof(header));
    if (header.magic != kMagic || header.kind >= kFrameKinds || header.bytes > kMostText)
      return false;
    if (come_.size() - at < sizeof(header) + header.bytes) break;
    Frame frame;
    frame.kind = static_cast<FrameKind>(header.kind);
    frame.rank = header.rank;
    frame.progress = {header.step, header.begun, header.done};
    frame.text.assign(come_.data() + at + sizeof(header), header.bytes);
    at += sizeof(header) + header.bytes;
    take(frame);
  }
  come_.erase(come_.begin(), come_.begin() + static_cast<std::ptrdiff_t>(at));
  return is_open;
}

Descriptor ListenAnywhere(int* port) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) ThrowErrno(errno, "heartbeat: socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    ThrowErrno(errno, "heartbeat: listen");
  }
  *port = ntohs(address.sin_port);
  return listener;
}

std::vector<std::string> AddressesOfThisMachine() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET ||
          (at->ifa_flags & IFF_UP) == 0)
        continue;
      if ((at->ifa_flags & IFF_LOOPBACK) != 0) continue;
      char text[INET_ADDRSTRLEN] = "";
      const auto* const address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text)) != nullptr)
        addresses.emplace_back(text);
    }
    freeifaddrs(all);
  }
  addresses.emplace_back("127.0.0.1");
  return addresses;
}

Descriptor Connect(const std::string& address, int port, std::chrono::milliseconds time) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return Descriptor();
  Descriptor link(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (link.get() < 0) return Descriptor();
  if (connect(link.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    if (errno != EINPROGRESS) return Descriptor();
    pollfd wait = {link.get(), POLLOUT, 0};
    int error = 0;
    socklen_t length = sizeof(error);
    if (poll(&wait, 1, static_cast<int>(time.count())) != 1 ||
        getsockopt(link.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
      return Descriptor();
    }
  }
  return link;
}

}  // namespace tidepool::nn
