#include "abacus/abacus_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/dlpack_devices.h"

namespace abacus {

using tidepool::DeviceProvider;
using tidepool::QueuePoint;

namespace {

constexpr size_t kPage = size_t{64} << 10;
constexpr size_t kAddressBytes = size_t{64} << 30;
constexpr size_t kMostBytes = kAddressBytes / 2;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Of two queues: the ticket, and which one.
QueuePoint OfKernels(uint64_t ticket) { return {2 * ticket}; }
QueuePoint OfCopies(uint64_t ticket) { return {2 * ticket + 1}; }

const tidepool::DeviceProviderRegistrar registrar(kAbacus, [](uint8_t index) -> DeviceProvider* {
  return AbacusDevice::Find(index);
});
// kDLExtDev, the number for devices that DLPack has no name for.
const tidepool::DLPackDeviceRegistrar dlpack(12, kAbacus, tidepool::DLPackStreams::kNone);

}  // namespace

AbacusDevice* AbacusDevice::Find(uint8_t index) {
  static auto* const device = new AbacusDevice;
  return index == 0 && device->addresses_ != nullptr ? device : nullptr;
}

AbacusDevice::AbacusDevice() : committed_(kAddressBytes / kPage) {
  // The addresses and the memory behind them; room to align.
  constexpr size_t bytes = 2 * kAddressBytes + tidepool::kMaxAlignment;
  std::map<std::byte*, size_t> all{{nullptr, kAddressBytes}};  // may throw: first
  void* const mapped =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return;
  addresses_ = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(mapped), tidepool::kMaxAlignment));
  memory_ = addresses_ + kAddressBytes;
  auto entry = all.extract(all.begin());
  entry.key() = addresses_;
  free_.insert(std::move(entry));
}

tidepool::MemoryTraits AbacusDevice::traits() const {
  return {.alignment = 128, .granularity = kPage, .reserve_bytes = size_t{1} << 30};
}

// ---- memory ---------------------------------------------------------------------------------

std::byte* AbacusDevice::TakeAddresses(size_t bytes, size_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, size] = *it;
    auto* const at =
        reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(begin), alignment));
    const auto before = static_cast<size_t>(at - begin);
    if (before + bytes > size) continue;
    // What may throw comes first; nothing has changed then.
    std::map<std::byte*, size_t> made{{at, bytes}};
    if (before + bytes < size) free_[at + bytes] = size - before - bytes;
    taken_.insert(made.extract(at));
    if (before > 0) {
      it->second = before;
    } else {
      free_.erase(it);
    }
    return at;
  }
  return nullptr;
}

void AbacusDevice::GiveAddresses(std::byte* at) noexcept {
  auto it = free_.insert(taken_.extract(at)).position;
  if (const auto next = std::next(it); next != free_.end() && at + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it == free_.begin()) return;
  if (const auto before = std::prev(it); before->first + before->second == at) {
    before->second += it->second;
    free_.erase(it);
  }
}

// Of whole pages; those that are as they should be already are left alone.
bool AbacusDevice::SetCommitted(std::byte* at, size_t bytes, bool committed) {
  const auto first = static_cast<size_t>(at - addresses_) / kPage, end = first + bytes / kPage;
  size_t changed = 0;
  for (size_t page = first; page < end; ++page)
    changed += committed_[page] != committed ? kPage : 0;
  if (changed == 0) return true;
  if (committed) {
    if (changed > kMemoryBytes - used_bytes_ ||
        mprotect(OnCard(at), bytes, PROT_READ | PROT_WRITE) != 0)
      return false;
    used_bytes_ += changed;
  } else {
    if (mmap(OnCard(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
      return false;
    }
    used_bytes_ -= changed;
  }
  std::fill(committed_.begin() + static_cast<ptrdiff_t>(first),
            committed_.begin() + static_cast<ptrdiff_t>(end), committed);
  return true;
}

std::byte* AbacusDevice::Reserve(size_t bytes) noexcept try {
  if (bytes > kMostBytes) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  return TakeAddresses(RoundUp(bytes, kPage), tidepool::kMaxAlignment);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void AbacusDevice::Unreserve(std::byte* base, size_t bytes) noexcept {
  AwaitUsersOf(base, bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  SetCommitted(base, RoundUp(bytes, kPage), false);
  GiveAddresses(base);
}

bool AbacusDevice::Commit(std::byte* at, size_t bytes, bool) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  return SetCommitted(at, bytes, true);
}

bool AbacusDevice::Decommit(std::byte* at, size_t bytes) noexcept {
  AwaitUsersOf(at, bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  return SetCommitted(at, bytes, false);
}

// Pages of its own: small blocks come from the workspaces above.
std::byte* AbacusDevice::Allocate(size_t bytes, size_t alignment) noexcept try {
  if (bytes > kMostBytes) return nullptr;
  const size_t whole = RoundUp(bytes + tidepool::kReadableTailBytes, kPage);
  std::lock_guard<std::mutex> lock(mutex_);
  std::byte* const data = TakeAddresses(whole, std::max(alignment, kPage));
  if (data == nullptr || SetCommitted(data, whole, true)) return data;
  GiveAddresses(data);
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void AbacusDevice::Release(std::byte* data, size_t bytes) noexcept {
  Unreserve(data, bytes + tidepool::kReadableTailBytes);
}

void AbacusDevice::AwaitUsersOf(std::byte* at, size_t bytes) {
  kernels_.AwaitUsersOf({at, at + bytes});
  copies_.AwaitUsersOf({at, at + bytes});
}

// ---- bytes ----------------------------------------------------------------------------------

void AbacusDevice::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void AbacusDevice::RunNow(std::function<void()> work) {
  const uint64_t copies = copies_.last();
  kernels_.Await(kernels_.Add({}, [this, copies, work = std::move(work)] {
    copies_.Await(copies);
    work();
  }));
  ThrowFailure();
}

void AbacusDevice::CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) {
  RunNow([=, this] { Copy(OnCard(to), from_host, bytes); });
}
void AbacusDevice::CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) {
  RunNow([=, this] { Copy(to_host, OnCard(from), bytes); });
}
void AbacusDevice::CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) {
  RunNow([=, this] { Copy(OnCard(to), OnCard(from), bytes); });
}
void AbacusDevice::Fill(std::byte* to, std::byte value, size_t bytes) {
  RunNow([=, this] { std::fill_n(OnCard(to), bytes, value); });
}

QueuePoint AbacusDevice::QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                                           QueuePoint after) {
  return OfCopies(copies_.Add({{to, to + bytes}}, [=, this] {
    Await(after);
    Copy(OnCard(to), from_host, bytes);
  }));
}

QueuePoint AbacusDevice::QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                         QueuePoint after) {
  auto* const begin = const_cast<std::byte*>(from);
  return OfCopies(copies_.Add({{begin, begin + bytes}}, [=, this] {
    Await(after);
    Copy(to_host, OnCard(from), bytes);
  }));
}

QueuePoint AbacusDevice::ComputePoint(int) { return OfKernels(kernels_.last()); }

// Whoever waits in a queue waits for what was queued before it, in either: that ends.
void AbacusDevice::ComputeAfter(int, QueuePoint point) {
  kernels_.Add({}, [=, this] { Await(point); });
}

bool AbacusDevice::HasPassed(QueuePoint point) {
  return (point.value % 2 == 0 ? kernels_ : copies_).IsDone(point.value / 2);
}

void AbacusDevice::Await(QueuePoint point) {
  (point.value % 2 == 0 ? kernels_ : copies_).Await(point.value / 2);
}

void AbacusDevice::WaitFor(QueuePoint point) {
  Await(point);
  ThrowFailure();
}

void AbacusDevice::ThrowFailure() {
  for (WorkQueue* queue : {&kernels_, &copies_}) {
    if (const std::string failure = queue->TakeFailure(); !failure.empty()) {
      tidepool::ThrowInternal("abacus:0: queued work failed: " + failure);
    }
  }
}

}  // namespace abacus
