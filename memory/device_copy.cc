#include "tidepool/memory/device_copy.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/sync/queue_order.h"

namespace tidepool {
namespace {

constinit std::atomic<PeerCopies*> peers_of[kMaxDeviceTypes] = {};

// How bytes come from one device to another, decided once.
struct Way {
  Way(PeerCopies* its_peers, std::string why) : peers(its_peers), why_staged(std::move(why)) {}
  PeerCopies* const peers;  // null: staged
  const std::string why_staged;
  std::atomic<int64_t> copies{0}, bytes{0}, pieces{0};
};
// From each place to each (device_check.h), null: not decided. Never destroyed: arrays are copied in static destructors,
// too. Those of which there are none cost addresses only.
constinit std::atomic<Way*> ways[kDevicePlaces][kDevicePlaces] = {};

std::atomic<Way*>& WayOf(Device from, Device to) {
  return ways[DevicePlace("copy between devices", from)][DevicePlace("copy between devices", to)];
}

// A backend's words, in one line of a report.
std::string Short(std::string why) {
  constexpr size_t kMost = 200;
  if (why.size() > kMost) why = why.substr(0, kMost) + "...";
  std::replace_if(
      why.begin(), why.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return why;
}

// The backend is asked under no lock: it takes its own, and calls its driver.
Way& DecideWay(Device from, Device to) {
  std::atomic<Way*>& known = WayOf(from, to);
  Way* way = known.load(std::memory_order_acquire);
  if (way != nullptr) [[likely]]
    return *way;
  PeerCopies* const peers =
      from.type == to.type ? peers_of[from.type.number()].load(std::memory_order_acquire) : nullptr;
  std::string why_staged = from.type != to.type ? "devices of two types"
                           : peers == nullptr   ? "the backend has no copies between its devices"
                                                : Short(peers->WhyNot(from, to));
  auto made = std::make_unique<Way>(why_staged.empty() ? peers : nullptr, std::move(why_staged));
  // Of several threads that ask at a time the first to come back decides for all.
  return known.compare_exchange_strong(way, made.get(), std::memory_order_acq_rel) ? *made.release()
                                                                                   : *way;
}

DeviceCopyCounters CountersOf(const Way& way) {
  return {true, way.why_staged, way.copies.load(std::memory_order_relaxed),
          way.bytes.load(std::memory_order_relaxed), way.pieces.load(std::memory_order_relaxed)};
}

// Behind what may still use the bytes that are about to be written.
QueuePoint BeforeWriting(DeviceProvider& device, Buffer& buffer) {
  return WasUsedBeforeThisWrite(buffer) ? PointAfterUses(buffer)
                                        : device.EarlierUses(buffer.data, buffer.bytes);
}

void WaitQuietly(DeviceProvider& device, QueuePoint point) noexcept {
  try {
    device.WaitFor(point);
  } catch (...) {
    // It failed, and uses nothing any more.
  }
}

// ---- peer to peer ---------------------------------------------------------------------------------

// For QueueInTurns.
class CopyInTurns {
 public:
  CopyInTurns(PeerCopies& peers, Buffer& target, std::byte* to, Buffer& source,
              const std::byte* from, size_t bytes)
      : peers_(peers),
        target_(target),
        source_(source),
        at_target_(GetDeviceProvider(target.device, "copy between devices")),
        at_source_(GetDeviceProvider(source.device, "copy between devices")),
        copy_{source.device, target.device, from, to, bytes, {}, {}, QueueHere(target.device)} {}

  QueueTurn TurnAtSource() const { return QueueTurn(source_.device, /*alone=*/true); }
  QueueTurn TurnAtTarget() const { return QueueTurn(target_.device, /*alone=*/true); }
  void FindUsesOfSource() { copy_.after = PointAfterUses(source_); }
  void FindUsesOfTarget() { copy_.after_there = BeforeWriting(at_target_, target_); }
  void Queue(QueueTurn&) {
    done_ = DependOnQueued(target_.device, source_.device, [this] { return peers_.Queue(copy_); });
  }
  void NoteAtTarget(const QueueTurn& turn) {
    OrderUsesAlone(turn, target_.device, copy_.to_queue, {&target_, true});
  }
  // Whoever writes the source's bytes next, or gets its memory, comes behind the copy.
  void ContinueSource() {
    source_queue_ = QueueHere(source_.device);
    at_source_.ComputeAfter(source_queue_, done_);
  }
  void NoteAtSource(const QueueTurn& turn) {
    OrderUsesAlone(turn, source_.device, source_queue_, {&source_, false});
  }
  void GiveUp() noexcept { WaitQuietly(at_source_, done_); }

 private:
  PeerCopies& peers_;
  Buffer& target_;
  Buffer& source_;
  DeviceProvider& at_target_;
  DeviceProvider& at_source_;
  PeerCopy copy_;
  QueuePoint done_;
  int source_queue_ = 0;
};

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
      piece.data =
          static_cast<std::byte*>(HeapAllocate(bytes_, 64, MemoryKind::kAllocated, memory_));
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

int64_t CopyStaged(Buffer& target, std::byte* to, Buffer& source, const std::byte* from,
                   size_t bytes) {
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

PeerCopies* FindPeerCopies(DeviceType type) {
  return peers_of[type.number()].load(std::memory_order_acquire);
}

PeerCopies* SwapPeerCopiesForTesting(DeviceType type, PeerCopies* peers) {
  return peers_of[type.number()].exchange(peers, std::memory_order_acq_rel);
}

PeerCopiesRegistrar::PeerCopiesRegistrar(DeviceType type, PeerCopies* peers) {
  if (peers == nullptr) {
    std::fprintf(stderr, "tidepool: the PeerCopies of %s devices is null\n",
                 DeviceTypeName(type).c_str());
    std::abort();
  }
  PeerCopies* known = nullptr;
  if (peers_of[type.number()].compare_exchange_strong(known, peers, std::memory_order_acq_rel))
    return;
  std::fprintf(stderr, "tidepool: a second PeerCopies for %s devices is linked\n",
               DeviceTypeName(type).c_str());
  std::abort();
}

void CopyBetweenDevices(Buffer& target, std::byte* to, Buffer& source, const std::byte* from,
                        size_t bytes) try {
  if (bytes == 0) return;
  if (source.device == target.device || source.device == Host() || target.device == Host()) {
    ThrowInvalidArgument(absl::StrCat("copy between devices: found bytes of ",
                                      DeviceName(source.device), " for ", DeviceName(target.device),
                                      ", expected two devices that are not the host"));
  }
  CheckNotLost(source.device, "copy between devices");
  CheckNotLost(target.device, "copy between devices");
  Way& way = DecideWay(source.device, target.device);
  CheckNotLost(source.device, "copy between devices");  // the backend may have found out
  CheckNotLost(target.device, "copy between devices");
  if (way.peers != nullptr) {
    PrepareToDepend(target.device, source.device);
    CopyInTurns copy(*way.peers, target, to, source, from, bytes);
    QueueInTurns(copy);
  } else {
    way.pieces.fetch_add(CopyStaged(target, to, source, from, bytes), std::memory_order_relaxed);
  }
  way.copies.fetch_add(1, std::memory_order_relaxed);
  way.bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
} catch (...) {
  RethrowAsError("copy between devices", absl::StrCat("the provider of ", DeviceName(source.device),
                                                      " or ", DeviceName(target.device)));
}

DeviceCopyCounters DeviceCopiesBetween(Device from, Device to) {
  const Way* const way = WayOf(from, to).load(std::memory_order_acquire);
  return way != nullptr ? CountersOf(*way) : DeviceCopyCounters();
}

std::string DescribeDeviceCopies() {
  std::string text;
  ForEachPossibleDevice([&](Device from) {
    ForEachPossibleDevice([&](Device to) {
      const DeviceCopyCounters way = DeviceCopiesBetween(from, to);
      if (!way.decided) return;
      absl::StrAppend(
          &text, DeviceName(from), " to ", DeviceName(to), ": ",
          way.why_staged.empty() ? "peer to peer" : absl::StrCat("staged (", way.why_staged, ")"),
          ", ", way.copies, " copies, ", way.bytes, " bytes\n");
    });
  });
  return text;
}

void ForgetDeviceCopiesForTesting() {
  for (auto& from : ways) {
    for (std::atomic<Way*>& way : from) delete way.exchange(nullptr, std::memory_order_acq_rel);
  }
}

}  // namespace tidepool
