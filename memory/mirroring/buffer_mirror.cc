#include "tidepool/memory/mirroring/buffer_mirror.h"

#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/host_copies.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/host_copies_together.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/memory/resource/heap.h"

namespace tidepool {
namespace {

bool WritesHost(MirrorEvent event) {
  return event == MirrorEvent::kHostWrite || event == MirrorEvent::kHostOverwrite;
}

DeviceProvider& HostMemoryFor(DeviceProvider& device) {
  DeviceProvider* const pinned = device.PinnedHost();
  return pinned != nullptr ? *pinned : GetDeviceProvider(Host(), "host copy");
}

// Kernels queued from here on in the thread's queue come after the points: on the device, or where it refuses
// that, with whatever exception, because the host waits. Throws when it cannot be waited for either.
void OrderAfter(DeviceProvider& device, const std::vector<QueuePoint>& points) {
  const int queue = QueueHere(device.device());
  std::exception_ptr failed;
  for (QueuePoint point : points) {
    try {
      device.ComputeAfter(queue, point);
    } catch (...) {
      try {
        device.WaitFor(point);
      } catch (...) {
        failed = std::current_exception();
      }
    }
  }
  if (failed != nullptr)
    AskProvider("host copy", device.device(), [&] { std::rethrow_exception(failed); });
}

// queue(&points) queues copies to the device. Those that were queued before it throws are on the way too. In a turn
// alone: nobody looks for the queue's end before it is behind them.
template <typename Queue>
void SendInOrder(DeviceProvider& device, const Queue& queue) {
  std::vector<QueuePoint> points;
  try {
    queue(&points);
  } catch (...) {
    try {
      OrderAfter(device, points);
    } catch (...) {
      // The first error says what was wrong.
    }
    RethrowAsError("host copy", device.device());
  }
  OrderAfter(device, points);
}

}  // namespace

BufferMirror& BufferMirror::Of(Buffer& buffer) {
  if (BufferMirror* known = Find(buffer)) return *known;
  internal::drop_mirror.store(&BufferMirror::Drop, std::memory_order_release);
  auto* made = new BufferMirror(buffer);
  BufferMirror* other = nullptr;
  if (!buffer.mirror.compare_exchange_strong(other, made, std::memory_order_acq_rel)) {
    made->Unref();
    return *other;
  }
  buffer.care.fetch_or(Buffer::kMirrored, std::memory_order_relaxed);
  return *made;
}

void BufferMirror::Drop(Buffer* buffer) noexcept {
  if (BufferMirror* mirror = buffer->mirror.exchange(nullptr, std::memory_order_acq_rel)) {
    mirror->Unref();
  }
}

BufferMirror::BufferMirror(Buffer& buffer)
    : buffer_(buffer),
      device_name_(buffer.device),
      device_(ProviderAt(buffer.data, buffer.device, "host copy")),
      host_memory_(HostMemoryFor(device_)),
      keeps_host_copy_(device_.PinnedHost() != nullptr),
      charged_to_(buffer.attached ? &MemoryOwner::Current() : buffer.outside.charged_to),
      data_(buffer.data),
      bytes_(buffer.bytes),
      freshness_(buffer.bytes, buffer.version.load(std::memory_order_relaxed) == 0 &&
                                       !buffer.MayBeWrittenOutside()
                                   ? Freshness::kNobody
                                   : Freshness::kDevice),
      ready_(buffer.attached || !IsUnused(buffer) ? PointAfterUses(buffer)
                                                  : AskProvider("host copy", buffer.device, [&] {
                                                      return device_.EarlierUses(data_, bytes_);
                                                    })) {}

BufferMirror::~BufferMirror() { ReleaseHostCopy(); }

void BufferMirror::ReleaseHostCopy() noexcept {
  if (host_ == nullptr) return;
  while (!sent_.empty()) {
    try {
      WaitForSent();
    } catch (...) {
      // That copy failed; it reads the memory no more.
    }
  }
  if (keeps_host_copy_) {
    HostCopies::Global().GiveBack(host_memory_, host_, bytes_, *charged_to_);
  } else {
    HeapRelease(host_, bytes_, MemoryKind::kAllocated, host_memory_, charged_to_);
  }
  host_ = nullptr;
}

void BufferMirror::WaitForSent() {
  for (; !sent_.empty(); sent_.pop_back()) {
    const QueuePoint point = sent_.back();
    absl::Cleanup gone = [this] { sent_.pop_back(); };
    AskProvider("host copy", device_name_, [&] { device_.WaitFor(point); });
    std::move(gone).Cancel();
  }
}

void BufferMirror::MakeHostCopy(const char* who) {
  if (const std::string why = buffer_.owner->WhyNoHostCopy(); !why.empty()) {
    ThrowFailedPrecondition(
        absl::StrCat("Op [", who, "]: host access to a buffer of ", bytes_, " bytes: ", why));
  }
  if (host_ != nullptr || bytes_ == 0) return;
  host_ = keeps_host_copy_ ? HostCopies::Global().Take(host_memory_, bytes_, *charged_to_)
                           : static_cast<std::byte*>(HeapAllocate(
                                 bytes_, 64, MemoryKind::kAllocated, host_memory_, charged_to_));
}

void BufferMirror::LookOutside() {
  if (buffer_.MayBeWrittenOutside()) freshness_.MakeDeviceNewer();
}

void BufferMirror::NoteWrittenOutside() {
  std::lock_guard<std::mutex> hold(mutex_);
  freshness_.MakeDeviceNewer();
}

// ---- copies ---------------------------------------------------------------------------------

// All are queued before the first is waited for.
void BufferMirror::Fetch(MirrorEvent event, size_t begin, size_t end) {
  const std::vector<FreshnessMap::Range> copies = freshness_.CopiesFor(event, begin, end);
  if (copies.empty()) {
    // What is overwritten and what nobody has written was not to be copied in the first place.
    if (event != MirrorEvent::kHostOverwrite && used_on_device_)
      CountMirrorAvoided(device_name_, false);
    return;
  }
  CheckNotLost(device_name_, "host copy");
  const QueuePoint after = PointAfterUses(buffer_);
  std::vector<QueuePoint> points;
  points.reserve(copies.size());
  // Whatever happens, none is under way when this is left.
  absl::Cleanup wait = [&] {
    for (QueuePoint point : points) {
      try {
        device_.WaitFor(point);
      } catch (...) {
      }
    }
  };
  for (const FreshnessMap::Range& range : copies) {
    points.push_back(AskProvider("host copy", device_name_, [&] {
      return device_.QueueCopyToHost(host_ + range.begin, data_ + range.begin,
                                     range.end - range.begin, after);
    }));
  }
  for (QueuePoint point : points)
    AskProvider("host copy", device_name_, [&] { device_.WaitFor(point); });
  CheckSources(device_name_, "host copy");
  ThrowValueFaultsOf(buffer_);
  for (const FreshnessMap::Range& range : copies) {
    CountMirrorCopy(device_name_, buffer_.owner, false, range.end - range.begin);
  }
}

// The point behind which copies begin, with room for `points` of theirs.
QueuePoint BufferMirror::PrepareToSend(const QueueTurn& turn, size_t points) {
  CheckNotLost(device_name_, "host copy");
  const QueuePoint after = used_on_device_ ? PointAfterUses(buffer_) : ready_;
  while (!sent_.empty() && device_.HasPassed(sent_.back())) sent_.pop_back();
  sent_.reserve(sent_.size() + points);
  // The thread's queue comes behind the copies, the others behind that one.
  OrderUsesAlone(turn, device_name_, QueueHere(device_name_), {&buffer_, true});
  return after;
}

void BufferMirror::Send(const QueueTurn& turn, MirrorEvent event, size_t begin, size_t end,
                        std::vector<QueuePoint>* points) {
  const std::vector<FreshnessMap::Range> copies = freshness_.CopiesFor(event, begin, end);
  if (copies.empty()) {
    if (host_ != nullptr) CountMirrorAvoided(device_name_, true);
  } else {
    const QueuePoint after = PrepareToSend(turn, copies.size());
    points->reserve(points->size() + copies.size());
    for (const FreshnessMap::Range& range : copies) {
      const QueuePoint point = device_.QueueCopyFromHost(data_ + range.begin, host_ + range.begin,
                                                         range.end - range.begin, after);
      points->push_back(point);
      sent_.push_back(point);
      CountMirrorCopy(device_name_, buffer_.owner, true, range.end - range.begin);
    }
  }
  freshness_.Apply(event, begin, end);
}

void BufferMirror::SendNow(const QueueTurn& turn, MirrorEvent event, size_t begin, size_t end) {
  SendInOrder(device_,
              [&](std::vector<QueuePoint>* points) { Send(turn, event, begin, end, points); });
}

// ---- accesses -------------------------------------------------------------------------------

void BufferMirror::CheckLocks(size_t begin, size_t end, bool writes, const std::string& who) const {
  for (const MirrorLock* lock = locks_; lock != nullptr; lock = lock->next) {
    if (lock->begin >= end || begin >= lock->end) continue;
    // Readers do not disturb each other, wherever they are.
    if (!writes && !lock->writes) continue;
    ThrowFailedPrecondition(absl::StrCat(
        who, " (bytes ", begin, " to ", end, " of a buffer on ", DeviceName(device_name_),
        ") is in use by a ", lock->writes ? "mutable " : "", lock->what, " (bytes ", lock->begin,
        " to ", lock->end, "), which must end first"));
  }
}

void BufferMirror::AddLock(MirrorLock* lock) {
  lock->next = locks_;
  locks_ = lock;
  Ref();
}

void BufferMirror::EndView(MirrorLock* lock) noexcept {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (MirrorLock** link = &locks_; *link != nullptr; link = &(*link)->next) {
      if (*link != lock) continue;
      *link = lock->next;
      break;
    }
  }
  Unref();
}

std::byte* BufferMirror::OnHost(MirrorEvent event, size_t begin, size_t end, const char* who,
                                MirrorLock* lock) {
  if (IsCrowded() && !IsLost(device_name_)) {  // what the host has of that can be read
    const QueueTurn turn(device_name_, /*alone=*/true);
    std::lock_guard<std::mutex> hold(mutex_);
    SendNow(turn, MirrorEvent::kDeviceRead, 0, bytes_);
  }
  std::lock_guard<std::mutex> hold(mutex_);
  CheckLocks(begin, end, WritesHost(event), absl::StrCat("Op [", who, "] X argument"));
  LookOutside();
  MakeHostCopy(who);
  if (WritesHost(event)) WaitForSent();
  Fetch(event, begin, end);
  freshness_.Apply(event, begin, end);
  if (lock != nullptr) AddLock(lock);
  return host_;
}

bool BufferMirror::ReadIfOnHost(size_t begin, size_t bytes, void* out, const char* who) {
  std::lock_guard<std::mutex> hold(mutex_);
  if (locks_ != nullptr) {
    CheckLocks(begin, begin + bytes, false, absl::StrCat("Op [", who, "] X argument"));
  }
  LookOutside();
  if (host_ == nullptr || !freshness_.IsFreshOn(true, begin, begin + bytes)) return false;
  std::memcpy(out, host_ + begin, bytes);
  if (used_on_device_) CountMirrorAvoided(device_name_, false);
  return true;
}

bool BufferMirror::IsFreshOnHost(size_t begin, size_t end) {
  std::lock_guard<std::mutex> hold(mutex_);
  LookOutside();
  return freshness_.IsFreshOn(true, begin, end);
}

bool BufferMirror::IsFreshOnDevice(size_t begin, size_t end) {
  std::lock_guard<std::mutex> hold(mutex_);
  return freshness_.IsFreshOn(false, begin, end);
}

void BufferMirror::PrepareForDevice(absl::Span<const DeviceUse> uses) {
  DeviceProvider* device = nullptr;
  bool are_several = false;
  for (const DeviceUse& use : uses) {
    BufferMirror* const mirror = Find(*use.buffer);
    if (mirror == nullptr) continue;
    are_several = are_several || (device != nullptr && device != &mirror->device_);
    device = &mirror->device_;
    std::lock_guard<std::mutex> hold(mirror->mutex_);
    if (mirror->locks_ == nullptr) continue;
    mirror->CheckLocks(use.begin, use.end, use.writes,
                       absl::StrCat("Op [", use.operation, "] ", use.operand, " argument"));
  }
  if (device == nullptr) return;
  if (!are_several) return SendUses(*device, uses);
  // The points of one device tell another nothing: each has its own turn and its own order.
  std::vector<DeviceUse> left(uses.begin(), uses.end()), others;
  while (!left.empty()) {
    DeviceProvider* next = nullptr;
    std::vector<DeviceUse> its_uses;
    for (DeviceUse& use : left) {
      BufferMirror* const mirror = Find(*use.buffer);
      if (mirror == nullptr) continue;
      if (next == nullptr) next = &mirror->device_;
      (&mirror->device_ == next ? its_uses : others).push_back(std::move(use));
    }
    if (next != nullptr) SendUses(*next, its_uses);
    left = std::exchange(others, {});
  }
}

void BufferMirror::SendUses(DeviceProvider& device, absl::Span<const DeviceUse> uses) {
  const QueueTurn turn(device.device(), /*alone=*/true);
  HostCopiesTogether* const together = uses.size() > 1 ? HostCopiesTogether::Of(device) : nullptr;
  SendInOrder(device, [&](std::vector<QueuePoint>* points) {
    if (together != nullptr) return SendTogether(turn, *together, uses, points);
    for (const DeviceUse& use : uses) {
      BufferMirror* const mirror = Find(*use.buffer);
      if (mirror == nullptr) continue;
      std::lock_guard<std::mutex> hold(mirror->mutex_);
      mirror->Send(turn, use.writes ? MirrorEvent::kDeviceWrite : MirrorEvent::kDeviceRead,
                   use.begin, use.end, points);
      mirror->used_on_device_ = true;
    }
  });
}

void BufferMirror::LockOnDevice(MirrorLock* lock, const char* who) {
  const QueueTurn turn(device_name_, /*alone=*/true);
  std::lock_guard<std::mutex> hold(mutex_);
  CheckLocks(lock->begin, lock->end, lock->writes, absl::StrCat("Op [", who, "] X argument"));
  SendNow(turn, lock->writes ? MirrorEvent::kDeviceWrite : MirrorEvent::kDeviceRead, lock->begin,
          lock->end);
  // What the view is for is queued in the thread's queue.
  OrderUsesAlone(turn, device_name_, QueueHere(device_name_), {&buffer_, lock->writes});
  used_on_device_ = true;
  AddLock(lock);
}

void BufferMirror::DropHostCopy() {
  const QueueTurn turn(device_name_, /*alone=*/true);
  std::lock_guard<std::mutex> hold(mutex_);
  for (const MirrorLock* lock = locks_; lock != nullptr; lock = lock->next) {
    if (!lock->on_host) continue;
    ThrowFailedPrecondition(absl::StrCat("DropHostCopy: the host copy is in use by a ", lock->what,
                                         ", which must end first"));
  }
  SendNow(turn, MirrorEvent::kHostDropped, 0, bytes_);
  ReleaseHostCopy();
}

bool BufferMirror::IsCrowded() {
  std::lock_guard<std::mutex> hold(mutex_);
  return host_ != nullptr && locks_ == nullptr && freshness_.is_crowded();
}

bool BufferMirror::has_host_copy() {
  std::lock_guard<std::mutex> hold(mutex_);
  return host_ != nullptr;
}

std::vector<FreshnessMap::Range> BufferMirror::ranges() {
  std::lock_guard<std::mutex> hold(mutex_);
  return freshness_.ranges();
}

}  // namespace tidepool
