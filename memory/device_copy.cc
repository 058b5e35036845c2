#include "tidepool/memory/device_copy.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/resource/heap.h"

namespace tidepool {
namespace {

constinit std::atomic<PeerCopies*> peers_of[kMaxDeviceTypes] = {};

struct Less {
  bool operator()(Device a, Device b) const {
    return std::make_tuple(a.type.number(), a.index) < std::make_tuple(b.type.number(), b.index);
  }
  bool operator()(const std::pair<Device, Device>& a, const std::pair<Device, Device>& b) const {
    return (*this)(a.first, b.first) || (!(*this)(b.first, a.first) && (*this)(a.second, b.second));
  }
};

// Never destroyed: arrays are copied in static destructors, too.
struct Ways {
  std::mutex mutex;
  std::map<std::pair<Device, Device>, DeviceCopyCounters, Less> all;
  static Ways& Get() {
    static auto* const ways = new Ways();
    return *ways;
  }
};

// Null: staged.
PeerCopies* DecideWay(Device from, Device to) {
  PeerCopies* const peers =
      from.type == to.type ? peers_of[from.type.number()].load(std::memory_order_acquire) : nullptr;
  Ways& ways = Ways::Get();
  std::lock_guard<std::mutex> lock(ways.mutex);
  DeviceCopyCounters& way = ways.all[{from, to}];
  if (!way.decided) {
    way.why_staged = from.type != to.type ? "devices of two types"
                     : peers == nullptr   ? "the backend has no copies between its devices"
                                          : peers->WhyNot(from, to);
    way.decided = true;
  }
  return way.why_staged.empty() ? peers : nullptr;
}

void Count(Device from, Device to, size_t bytes, int64_t pieces) {
  Ways& ways = Ways::Get();
  std::lock_guard<std::mutex> lock(ways.mutex);
  DeviceCopyCounters& way = ways.all[{from, to}];
  ++way.copies;
  way.bytes += static_cast<int64_t>(bytes);
  way.pieces += pieces;
}

// Behind what may still use the bytes that are about to be written: where the write that has been marked is the
// first, and nothing has read them, what used the memory before.
QueuePoint BeforeWriting(DeviceProvider& device, Buffer& buffer) {
  const bool used = buffer.version.load(std::memory_order_relaxed) > 1 ||
                    (buffer.care.load(std::memory_order_relaxed) & Buffer::kOnQueues) != 0;
  return buffer.attached || used ? PointAfterUses(buffer) : device.EarlierUses(buffer.data, buffer.bytes);
}

void WaitQuietly(DeviceProvider& device, QueuePoint point) noexcept {
  try {
    device.WaitFor(point);
  } catch (const Error&) {
    // It failed, and uses nothing any more.
  }
}

// ---- peer to peer ---------------------------------------------------------------------------------

// One turn after the other, and what is queued is noted when it is ordered: whoever may look at the bytes in between
// reads the source, as the copy does.
void CopyToPeer(PeerCopies& peers, Buffer& target, std::byte* to, Buffer& source, const std::byte* from,
                size_t bytes) {
  const Device here = source.device, there = target.device;
  DeviceProvider& device = GetDeviceProvider(here, "copy between devices");
  PrepareToDepend(there, here);
  PeerCopy copy{here, there, from, to, bytes, {}, {}, QueueHere(there)};
  {
    const QueueTurn turn(here, /*alone=*/true);
    copy.after = PointAfterUses(source);
  }
  QueuePoint done;
  try {
    {
      const QueueTurn turn(there, /*alone=*/true);
      copy.after_there = BeforeWriting(GetDeviceProvider(there, "copy between devices"), target);
      done = peers.Queue(copy);
      DependOn(there, here, done);
      OrderUsesAlone(turn, there, copy.to_queue, {&target, true});
    }
    // Whoever writes the source's bytes next, or gets its memory, comes behind the copy.
    const QueueTurn turn(here, /*alone=*/true);
    const int queue = QueueHere(here);
    device.ComputeAfter(queue, done);
    OrderUsesAlone(turn, here, queue, {&source, false});
  } catch (...) {
    WaitQuietly(device, done);
    throw;
  }
}

// ---- staged ---------------------------------------------------------------------------------------

class Staging {
 public:
  Staging(DeviceProvider& memory, DeviceProvider& target, size_t bytes)
      : memory_(memory), target_(target), bytes_(bytes) {}
  ~Staging() {
    for (Piece& piece : pieces_) {
      WaitQuietly(target_, piece.sent);
      HeapRelease(piece.data, bytes_, MemoryKind::kAllocated, memory_);
    }
  }
  // Where the next piece may be put: what was there before has been sent.
  std::byte* Next() {
    Piece& piece = pieces_[++turn_ % 2];
    if (piece.data == nullptr) {
      piece.data = static_cast<std::byte*>(HeapAllocate(bytes_, 64, MemoryKind::kAllocated, memory_));
    }
    target_.WaitFor(piece.sent);
    piece.sent = {};
    return piece.data;
  }
  void Sent(QueuePoint point) { pieces_[turn_ % 2].sent = point; }
  void Finish() {
    for (Piece& piece : pieces_) {
      target_.WaitFor(piece.sent);
      piece.sent = {};
    }
  }

 private:
  struct Piece {
    std::byte* data = nullptr;
    QueuePoint sent;
  };
  DeviceProvider& memory_;
  DeviceProvider& target_;
  const size_t bytes_;
  int turn_ = 0;
  Piece pieces_[2];
};

int64_t CopyStaged(Buffer& target, std::byte* to, Buffer& source, const std::byte* from, size_t bytes) {
  DeviceProvider& here = GetDeviceProvider(source.device, "copy between devices");
  DeviceProvider& there = GetDeviceProvider(target.device, "copy between devices");
  DeviceProvider* memory = here.PinnedHost();
  if (memory == nullptr) memory = there.PinnedHost();
  if (memory == nullptr) memory = &GetDeviceProvider(Host(), "copy between devices");
  QueuePoint after, after_there;
  {
    const QueueTurn turn(source.device, /*alone=*/true);
    after = PointAfterUses(source);
  }
  {
    const QueueTurn turn(target.device, /*alone=*/true);
    after_there = BeforeWriting(there, target);
  }
  Staging staging(*memory, there, std::min(bytes, kStagedBytes));
  int64_t pieces = 0;
  for (size_t done = 0; done < bytes; done += kStagedBytes, ++pieces) {
    const size_t piece = std::min(bytes - done, kStagedBytes);
    std::byte* const at = staging.Next();
    const QueuePoint fetched = here.QueueCopyToHost(at, from + done, piece, after);
    here.WaitFor(fetched);
    CheckSources(source.device, "copy between devices");
    staging.Sent(there.QueueCopyFromHost(to + done, at, piece, after_there));
  }
  staging.Finish();
  return pieces;
}

}  // namespace

PeerCopiesRegistrar::PeerCopiesRegistrar(DeviceType type, PeerCopies* peers) {
  PeerCopies* known = nullptr;
  if (peers_of[type.number()].compare_exchange_strong(known, peers, std::memory_order_acq_rel)) return;
  std::fprintf(stderr, "tidepool: a second PeerCopies for %s devices is linked\n", DeviceTypeName(type).c_str());
  std::abort();
}

void CopyBetweenDevices(Buffer& target, std::byte* to, Buffer& source, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  CheckNotLost(source.device, "copy between devices");
  CheckNotLost(target.device, "copy between devices");
  int64_t pieces = 0;
  if (PeerCopies* const peers = DecideWay(source.device, target.device)) {
    CopyToPeer(*peers, target, to, source, from, bytes);
  } else {
    pieces = CopyStaged(target, to, source, from, bytes);
  }
  Count(source.device, target.device, bytes, pieces);
}

DeviceCopyCounters DeviceCopiesBetween(Device from, Device to) {
  Ways& ways = Ways::Get();
  std::lock_guard<std::mutex> lock(ways.mutex);
  const auto it = ways.all.find({from, to});
  return it != ways.all.end() ? it->second : DeviceCopyCounters();
}

std::string DescribeDeviceCopies() {
  Ways& ways = Ways::Get();
  std::lock_guard<std::mutex> lock(ways.mutex);
  std::string text;
  for (const auto& [devices, way] : ways.all) {
    absl::StrAppend(&text, DeviceName(devices.first), " to ", DeviceName(devices.second), ": ",
                    way.why_staged.empty() ? "peer to peer" : absl::StrCat("staged (", way.why_staged, ")"), ", ",
                    way.copies, " copies, ", way.bytes, " bytes\n");
  }
  return text;
}

void ForgetDeviceCopiesForTesting() {
  Ways& ways = Ways::Get();
  std::lock_guard<std::mutex> lock(ways.mutex);
  ways.all.clear();
}

}  // namespace tidepool
