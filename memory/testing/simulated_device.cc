#include "tidepool/memory/testing/simulated_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/mirroring/host_copies.h"
#include "tidepool/memory/provider/host_provider.h"

namespace tidepool {
namespace {

constexpr size_t kGranule = SimulatedDevice::kGranularity;

DeviceProvider* Find(uint8_t index) {
  return index < SimulatedDevice::kDevices ? &SimulatedDevice::Get(index) : nullptr;
}

// Never destroyed, as devices are not.
SimulatedQueues& QueuesOfAll() {
  static auto* const queues = new SimulatedQueues();
  return *queues;
}

const DeviceProviderRegistrar registrar(DeviceType::Named("simulated"), &Find);

}  // namespace

void SimulatedDevice::Die(const char* what, const void* at, size_t bytes) {
  std::fprintf(stderr, "simulated device: illegal %s of %zu bytes at %p\n", what, bytes, at);
  std::abort();
}

// Page-locked memory is host memory that somebody counts.
class SimulatedDevice::Pinned final : public DeviceProvider {
 public:
  explicit Pinned(SimulatedDevice& of) : of_(of) {}

  std::string name() const override { return "pinned memory of " + of_.name(); }
  Device device() const override { return Host(); }
  MemoryTraits traits() const override {
    MemoryTraits traits = host_.traits();
    traits.alignment = kAlignment;
    traits.large_granularity = 0;
    return traits;
  }
  std::byte* Reserve(size_t bytes) noexcept override { return host_.Reserve(bytes); }
  void Unreserve(std::byte* base, size_t bytes) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = committed_.lower_bound(base);
         it != committed_.end() && it->first < base + bytes;) {
      used_ -= it->second;
      it = committed_.erase(it);
    }
    host_.Unreserve(base, bytes);
  }
  bool Commit(std::byte* at, size_t bytes, bool) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    try {
      committed_[at] = bytes;
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (!host_.Commit(at, bytes, false)) {
      committed_.erase(at);
      return false;
    }
    used_ += bytes;
    return true;
  }
  // Page-locked memory goes as it came; a part of it cannot.
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = committed_.find(at);
    if (it == committed_.end() || it->second != bytes || !host_.Decommit(at, bytes)) return false;
    used_ -= bytes;
    committed_.erase(it);
    return true;
  }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    std::byte* const data = host_.Allocate(bytes, alignment);
    if (data != nullptr) used_ += bytes;
    return data;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    if (of_.queues_.IsUsed({data, data + bytes})) Die("release under a copy", data, bytes);
    used_ -= bytes;
    host_.Release(data, bytes);
  }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    host_.CopyFromHost(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    host_.CopyToHost(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    host_.CopyOnDevice(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override { host_.Fill(to, value, bytes); }

  size_t used_bytes() const { return used_; }

 private:
  SimulatedDevice& of_;
  DeviceProvider& host_ = HostProvider();
  std::mutex mutex_;
  std::map<std::byte*, size_t> committed_;
  std::atomic<size_t> used_{0};
};

SimulatedDevice& SimulatedDevice::Get(int index) {
  static SimulatedDevice* const devices[kDevices] = {new SimulatedDevice(0), new SimulatedDevice(1),
                                                     new SimulatedDevice(2)};
  if (index < 0 || index >= kDevices) Die("device number", nullptr, static_cast<size_t>(index));
  return *devices[index];
}

SimulatedDevice::SimulatedDevice(int index)
    : device_{DeviceType::Named("simulated"), static_cast<uint8_t>(index)},
      pinned_(new Pinned(*this)),
      queues_(QueuesOfAll()) {}

void SimulatedDevice::set_capacity(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  capacity_ = bytes;
}
void SimulatedDevice::set_reserve_bytes(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  reserve_bytes_ = bytes;
}
void SimulatedDevice::set_alignment(size_t alignment) {
  std::lock_guard<std::mutex> lock(mutex_);
  alignment_ = alignment;
}
void SimulatedDevice::set_has_pinned_host(bool has) {
  std::lock_guard<std::mutex> lock(mutex_);
  has_pinned_host_ = has;
}

void SimulatedDevice::set_asynchronous(uint64_t seed) { queues_.Start(seed, device_.index); }

void SimulatedDevice::Reset() {
  reclaimer_ = Reclaimer::Registration();
  kept_.reset();
  queues_.Stop(device_.index);
  queues_.set_checks_order(true);
  HostCopies::Global().Trim();  // kept for mirrors to come
  std::lock_guard<std::mutex> lock(mutex_);
  if (used_ > 0 || pinned_->used_bytes() > 0) Die("reset with memory in use", nullptr, used_);
  capacity_ = size_t{1} << 30;
  reserve_bytes_ = size_t{4} << 30;
  alignment_ = kAlignment;
  has_pinned_host_ = false;
  counters_ = Counters();
  faults_.Clear();
  poison_.Clear();
  poisoned_ = tells_late_ = false;
  poisoned_by_ = nullptr;
  ForgetLossForTesting(device_);
}

size_t SimulatedDevice::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}
size_t SimulatedDevice::pinned_bytes() const { return pinned_->used_bytes(); }
SimulatedDevice::Counters SimulatedDevice::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

std::string SimulatedDevice::name() const { return DeviceName(device_); }

MemoryTraits SimulatedDevice::traits() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {alignment_, kGranularity, 0, reserve_bytes_, false};
}

DeviceProvider* SimulatedDevice::PinnedHost() {
  std::lock_guard<std::mutex> lock(mutex_);
  return has_pinned_host_ ? pinned_ : nullptr;
}

// ---- memory ---------------------------------------------------------------------------------

std::byte* SimulatedDevice::NewRange(size_t bytes) {
  if (bytes > SIZE_MAX / 4) return nullptr;
  bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  // Both without access: the device's addresses for ever, the hidden ones until committed.
  std::byte* const base = HostProvider().Reserve(bytes);
  if (base == nullptr) return nullptr;
  std::byte* const hidden = HostProvider().Reserve(bytes);
  if (hidden == nullptr) {
    HostProvider().Unreserve(base, bytes);
    return nullptr;
  }
  try {
    ranges_[base] = Range{bytes, hidden, std::vector<bool>(bytes / kGranule)};
    return base;
  } catch (const std::bad_alloc&) {
    ranges_.erase(base);
    HostProvider().Unreserve(hidden, bytes);
    HostProvider().Unreserve(base, bytes);
    return nullptr;
  }
}

void SimulatedDevice::EndRange(std::byte* base) {
  const auto it = ranges_.find(base);
  Range& range = it->second;
  for (bool committed : range.committed) used_ -= committed ? kGranule : 0;
  HostProvider().Unreserve(range.hidden, range.bytes);
  HostProvider().Unreserve(base, range.bytes);
  ranges_.erase(it);
}

SimulatedDevice::Range* SimulatedDevice::Find(const std::byte* at, size_t bytes, const char* what,
                                              std::byte** base) {
  auto it = ranges_.upper_bound(const_cast<std::byte*>(at));
  if (it == ranges_.begin()) Die(what, at, bytes);
  --it;
  if (static_cast<size_t>(at - it->first) + bytes > it->second.bytes) Die(what, at, bytes);
  *base = it->first;
  return &it->second;
}

std::byte* SimulatedDevice::Bytes(const std::byte* at, size_t bytes, const char* what) {
  std::byte* base;
  Range* const range = Find(at, bytes, what, &base);
  const size_t begin = static_cast<size_t>(at - base);
  for (size_t granule = begin / kGranule; granule * kGranule < begin + bytes; ++granule) {
    if (!range->committed[granule]) Die(what, at, bytes);
  }
  return range->hidden + begin;
}

std::byte* SimulatedDevice::Hidden(const std::byte* at, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Bytes(at, bytes, "use by a kernel");
}

std::byte* SimulatedDevice::Reserve(size_t bytes) noexcept {
  if (faults_.Next() || !Works()) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  ++counters_.reservations;
  return NewRange(bytes);
}

void SimulatedDevice::Unreserve(std::byte* base, size_t bytes) noexcept {
  queues_.WaitForUsersOf({base, base + bytes});
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(base);
  if (it == ranges_.end() || it->second.block_bytes != SIZE_MAX || it->second.bytes < bytes ||
      it->second.bytes - bytes >= kGranule) {
    Die("end of a range", base, bytes);
  }
  EndRange(base);
}

bool SimulatedDevice::Commit(std::byte* at, size_t bytes, bool) noexcept {
  if (faults_.Next() || !Works()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  std::byte* base;
  Range* const range = Find(at, bytes, "commit", &base);
  const size_t begin = static_cast<size_t>(at - base);
  if (begin % kGranule != 0 || bytes % kGranule != 0) Die("commit (granularity)", at, bytes);
  for (size_t i = begin / kGranule; i < (begin + bytes) / kGranule; ++i) {
    if (range->committed[i]) Die("commit of committed memory", at, bytes);
  }
  ++counters_.commits;
  if (bytes > capacity_ - std::min(capacity_, used_)) return false;
  if (!HostProvider().Commit(range->hidden + begin, bytes, false)) return false;
  for (size_t i = begin / kGranule; i < (begin + bytes) / kGranule; ++i) range->committed[i] = true;
  used_ += bytes;
  return true;
}

bool SimulatedDevice::Decommit(std::byte* at, size_t bytes) noexcept {
  if (faults_.Next()) return false;
  queues_.WaitForUsersOf({at, at + bytes});
  std::lock_guard<std::mutex> lock(mutex_);
  std::byte* const hidden = Bytes(at, bytes, "decommit");
  std::byte* base;
  Range* const range = Find(at, bytes, "decommit", &base);
  const size_t begin = static_cast<size_t>(at - base);
  if (begin % kGranule != 0 || bytes % kGranule != 0) Die("decommit (granularity)", at, bytes);
  ++counters_.decommits;
  if (!HostProvider().Decommit(hidden, bytes)) return false;
  for (size_t i = begin / kGranule; i < (begin + bytes) / kGranule; ++i)
    range->committed[i] = false;
  used_ -= bytes;
  return true;
}

// ---- bytes ----------------------------------------------------------------------------------

void SimulatedDevice::MayFail(const char* what) {
  CheckWorks(what);
  if (faults_.Next()) ThrowInternal(name() + ": the " + what + " failed, as the test wanted");
}

void SimulatedDevice::CheckWorks(const char* what) {
  if (poisoned_)
    LoseDevice(device_, "a kernel used a wrong address, as the test wanted", poisoned_by_);
  if (IsLost(device_)) ThrowLost(device_, std::string("simulated device: ") + what);
}

void SimulatedDevice::ThrowIfLost(const std::string& who) {
  if (poisoned_)
    LoseDevice(device_, "a kernel used a wrong address, as the test wanted", poisoned_by_);
  DeviceProvider::ThrowIfLost(who);
}

// Of what was queued, some may have poisoned it.
void SimulatedDevice::AwaitAll() {
  queues_.WaitForAll(device_.index);
  CheckWorks("wait");
}

void SimulatedDevice::CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) {
  MayFail("copy from the host");
  if (bytes == 0) return;
  AwaitAll();
  std::lock_guard<std::mutex> lock(mutex_);
  std::memcpy(Bytes(to, bytes, "copy from the host"), from_host, bytes);
  ++counters_.copies_from_host;
  counters_.bytes_from_host += static_cast<int64_t>(bytes);
}

void SimulatedDevice::CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) {
  MayFail("copy to the host");
  if (bytes == 0) return;
  AwaitAll();
  std::lock_guard<std::mutex> lock(mutex_);
  std::memcpy(to_host, Bytes(from, bytes, "copy to the host"), bytes);
  ++counters_.copies_to_host;
  counters_.bytes_to_host += static_cast<int64_t>(bytes);
}

void SimulatedDevice::CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) {
  MayFail("copy");
  if (bytes == 0) return;
  AwaitAll();
  std::lock_guard<std::mutex> lock(mutex_);
  std::memcpy(Bytes(to, bytes, "copy to"), Bytes(from, bytes, "copy from"), bytes);
  ++counters_.copies_on_device;
  counters_.bytes_on_device += static_cast<int64_t>(bytes);
}

void SimulatedDevice::Fill(std::byte* to, std::byte value, size_t bytes) {
  MayFail("fill");
  if (bytes == 0) return;
  AwaitAll();
  std::lock_guard<std::mutex> lock(mutex_);
  std::memset(Bytes(to, bytes, "fill"), static_cast<int>(value), bytes);
  ++counters_.fills;
  counters_.bytes_filled += static_cast<int64_t>(bytes);
}

}  // namespace tidepool
