#include "tidepool/memory/profile/recorder.h"

#include <execinfo.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracing.h"

namespace tidepool::internal {
namespace {

constexpr int64_t kCoarseSteps = 2000;  // of the time so far, beyond max_records

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string WallClock() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  char text[32] = "";
  if (gmtime_r(&now, &parts) != nullptr)
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

// What follows may fail for lack of memory, which is told of in the end.
template <typename Function>
bool Try(const Function& function) noexcept {
  try {
    function();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

std::pair<int, int> KeyOf(Device device) { return {device.type.number(), device.index}; }

}  // namespace

MemoryRecorder& MemoryRecorder::Global() {
  static MemoryRecorder* const recorder = [] {
    // A child of fork() records nothing: another thread may have had the lock.
    pthread_atfork(nullptr, nullptr,
                   [] { MemoryListener::Exchange(MemoryListener::kProfile, nullptr); });
    return new MemoryRecorder;
  }();
  return *recorder;
}

bool MemoryRecorder::Start(size_t max_records, bool sites) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (running_) return false;
    running_ = true;
    Clear();
    max_records_ = max_records;
    with_sites_ = sites;
    origin_ = SteadyNanoseconds();
    began_ = WallClock();
    traced_before_ = MemoryTracing::enabled();
  }
  MemoryTracing::Enable();  // workspaces tell of the cycles that they trace
  MemoryListener::Exchange(MemoryListener::kProfile, this);
  MemoryTracker::Global().ObserveAllDevices(this);
  AddBaseline();
  return true;
}

void MemoryRecorder::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!running_) return;
  }
  MemoryTracker::Global().FoldAll();
  MemoryTracker::Global().StopObserving(this);
  MemoryListener::Exchange(MemoryListener::kProfile, nullptr);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!traced_before_) MemoryTracing::Disable();
  running_ = false;
  duration_ = Now();
  FlushPending(duration_);
  partial_cycles_ += static_cast<int64_t>(open_.size());
}

void MemoryRecorder::Clear() {
  records_ = 0;
  dropped_arrays_ = dropped_cycles_ = partial_cycles_ = 0;
  coarse_since_ = -1;
  last_flush_ = 0;
  arrays_.clear();
  heap_.clear();
  requests_.clear();
  open_.clear();
  cycle_kinds_.clear();
  kinds_by_hash_.clear();
  cycles_.clear();
  last_cycle_.clear();
  places_.clear();
  steps_.clear();
  pending_.clear();
  stacks_.assign(1, Stack{});
  stack_numbers_.clear();
  names_.assign(1, "");
  name_numbers_.clear();
  devices_.clear();
  has_baseline_ = false;
}

int64_t MemoryRecorder::Now() const { return SteadyNanoseconds() - origin_; }

// ---- the ledger -------------------------------------------------------------------------------

void MemoryRecorder::AddStep(Device device, MemoryKind kind, int64_t bytes,
                             const MemoryOwner* owner, bool at_start) {
  if (bytes == 0) return;
  const int64_t now = at_start ? 0 : Now();
  const auto kind_index = static_cast<uint8_t>(kind);
  if (coarse_since_ < 0) {
    if (HasRoom()) {
      ++records_;
      steps_.push_back({now, bytes, owner, device, kind_index, at_start});
      return;
    }
    coarse_since_ = last_flush_ = now;
  }
  pending_[{device, kind_index, owner}] += bytes;
  if (now - last_flush_ >= std::max<int64_t>(now / kCoarseSteps, 1)) FlushPending(now);
}

void MemoryRecorder::FlushPending(int64_t now) {
  last_flush_ = now;
  for (const auto& [key, bytes] : pending_) {
    if (bytes != 0) steps_.push_back({now, bytes, key.owner, key.device, key.kind, false});
  }
  pending_.clear();
}

void MemoryRecorder::Added(Device device, MemoryKind kind, int64_t bytes,
                           const MemoryOwner& owner) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  Try([&] {
    DeviceTotals& totals = devices_[KeyOf(device)];
    if (!totals.known) return;  // of a device that its first reading will tell
    totals.added[static_cast<int>(kind)] += bytes;
    AddStep(device, kind, bytes, &owner);
  });
}

void MemoryRecorder::Owned(Device device, int64_t bytes, const MemoryOwner& owner) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  Try([&] {
    if (!devices_[KeyOf(device)].known) return;
    AddStep(device, MemoryKind::kUnreferenced, bytes, &owner);
  });
}

// The first of a device is what there was; later ones tell what workspaces use that no recorded cycle explains.
void MemoryRecorder::Observe(const LedgerReading& reading) noexcept {
  if (MemoryListener::Current(MemoryListener::kProfile) != this) return;  // a child of fork()
  std::lock_guard<std::mutex> lock(mutex_);
  Try([&] {
    DeviceTotals& totals = devices_[KeyOf(reading.device)];
    totals.peak = std::max(totals.peak, reading.total);
    if (totals.known) return FindResidual(reading);
    totals.known = true;
    totals.added = reading.current;
    if (!has_baseline_) return;
    // It came later than the recording began, with its first change.
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      AddStep(reading.device, static_cast<MemoryKind>(kind), reading.current[kind], nullptr);
    }
  });
}

void MemoryRecorder::FindResidual(const LedgerReading& reading) {
  for (const auto& [workspace, cycle] : open_) {
    if (!cycle.complete) continue;
    const auto place = places_.find(workspace);
    if (place == places_.end() || place->second.device == reading.device) return;
  }
  DeviceTotals& totals = devices_[KeyOf(reading.device)];
  constexpr int kAllocated = static_cast<int>(MemoryKind::kAllocated);
  const int64_t residual = reading.current[kAllocated] - totals.added[kAllocated];
  const int64_t change = residual - totals.residual;
  totals.residual = residual;
  AddStep(reading.device, MemoryKind::kAllocated, change, nullptr);
  AddStep(reading.device, MemoryKind::kUnreferenced, -change, nullptr);
  // Cycles that are not kept were so much higher since the last change.
  if (const int64_t more = reading.in_use_highest - reading.in_use; more > 0 && !HasRoom()) {
    for (const int64_t bytes : {more, -more}) {
      steps_.push_back({Now(), bytes, nullptr, reading.device, kAllocated, false});
      steps_.push_back({Now(), -bytes, nullptr, reading.device,
                        static_cast<uint8_t>(MemoryKind::kUnreferenced), false});
    }
  }
}

// What each owner holds when the recording begins.
void MemoryRecorder::AddBaseline() {
  class Probe final : public LedgerObserver {
   public:
    LedgerReading of{};

   private:
    void Observe(const LedgerReading& reading) noexcept override { of = reading; }
  };
  constexpr size_t kMostOwners = 4096;  // beyond, all is the process's
  std::vector<MemoryOwner*> owners = MemoryOwner::All();
  if (owners.size() > kMostOwners) owners.resize(1);
  std::vector<std::pair<Device, std::array<int64_t, kMemoryKinds>>> devices;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    has_baseline_ = true;
    for (const auto& [key, totals] : devices_) {
      if (!totals.known) continue;
      devices.push_back(
          {{DeviceType::Numbered(key.first), static_cast<uint8_t>(key.second)}, totals.added});
    }
  }
  std::vector<Step> steps;
  for (const auto& [device, all] : devices) {
    std::map<const MemoryOwner*, std::array<int64_t, kMemoryKinds>> own;
    for (MemoryOwner* owner : owners) {
      if (owner->parent() == nullptr) continue;
      Probe probe;
      MemoryTracker::Global().Observe(&probe, device, owner);
      MemoryTracker::Global().StopObserving(&probe);
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        own[owner][kind] += probe.of.current[kind];
        own[owner->parent()][kind] -= probe.of.current[kind];
      }
    }
    for (int kind = 0; kind < kMemoryKinds; ++kind) own[&MemoryOwner::Process()][kind] += all[kind];
    for (const auto& [owner, bytes] : own) {
      for (int kind = 0; kind < kMemoryKinds; ++kind) {
        if (bytes[kind] != 0)
          steps.push_back({0, bytes[kind], owner, device, static_cast<uint8_t>(kind), true});
      }
    }
  }
  std::lock_guard<std::mutex> lock(mutex_);
  records_ += steps.size();
  steps_.insert(steps_.begin(), steps.begin(), steps.end());
}

// ---- arrays -----------------------------------------------------------------------------------

uint32_t MemoryRecorder::StackHere() {
  if (!with_sites_) return 0;
  Stack stack{};
  backtrace(stack.data(), kFrames);
  const auto [found, is_new] =
      stack_numbers_.try_emplace(stack, static_cast<uint32_t>(stacks_.size()));
  if (is_new) stacks_.push_back(stack);
  return found->second;
}

bool MemoryRecorder::Array::SameRequest(const Array& other) const {
  return bytes == other.bytes && taken == other.taken && offset == other.offset &&
         owner == other.owner && stack == other.stack && name == other.name &&
         flags == other.flags && kind == other.kind && released_after == other.released_after;
}

void MemoryRecorder::Made(Buffer& buffer) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) return;
  if (!HasRoom()) {
    ++dropped_arrays_;
    return;
  }
  const auto bytes = static_cast<int64_t>(buffer.bytes);
  Try([&] {
    const uint8_t flags = buffer.imported ? ProfileArray::kImported : 0;
    arrays_.push_back({Now(), bytes, bytes, -1, kAliveAtEnd, buffer.id, buffer.outside.charged_to,
                       StackHere(), 0, buffer.device, static_cast<uint8_t>(buffer.kind), flags, 0});
    ++records_;
    heap_[buffer.id] = static_cast<uint32_t>(arrays_.size() - 1);
  });
  if (const auto mark = tell_operators_of_thread.load(std::memory_order_acquire)) mark();
}

void MemoryRecorder::Gone(const Buffer& buffer) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = heap_.find(buffer.id);
  if (!running_ || found == heap_.end()) return;
  arrays_[found->second].died = Now();
  heap_.erase(found);
}

void MemoryRecorder::Requested(const RecordedCycleRequest& request) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) return;
  Try([&] {
    OpenCycle& cycle = open_[request.workspace];
    if (cycle.generation != request.generation) {
      for (const Array& old : cycle.requests) requests_.erase(old.id);
      cycle = {request.generation, {}, request.slot == 0};
    }
    if (!cycle.complete) return;
    if (cycle.requests.size() != request.slot || !HasRoom(cycle.requests.size() + 1)) {
      cycle.complete = false;
      return;
    }
    uint8_t flags = 0;
    if (request.offset < 0) flags |= ProfileArray::kOutside;
    if (request.missed) flags |= ProfileArray::kMissed;
    const Buffer& buffer = *request.buffer;
    cycle.requests.push_back(
        {Now(), static_cast<int64_t>(buffer.bytes), static_cast<int64_t>(request.rounded_bytes),
         request.offset, kAliveAtEnd, buffer.id, &MemoryOwner::Current(), StackHere(), 0,
         buffer.device, static_cast<uint8_t>(MemoryKind::kAllocated), flags, 0});
    requests_[buffer.id] = {request.workspace, request.slot};
  });
  if (const auto mark = tell_operators_of_thread.load(std::memory_order_acquire)) mark();
}

void MemoryRecorder::Written(const Buffer& buffer, const char* op, std::string_view what) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) return;
  Array* array = nullptr;
  if (const auto request = requests_.find(buffer.id); request != requests_.end()) {
    const auto cycle = open_.find(request->second.first);
    if (cycle != open_.end() && request->second.second < cycle->second.requests.size()) {
      array = &cycle->second.requests[request->second.second];
    }
  } else if (const auto found = heap_.find(buffer.id); found != heap_.end()) {
    array = &arrays_[found->second];
  }
  if (array == nullptr || array->id != buffer.id || array->name != 0) return;
  Try([&] {
    const auto [found, is_new] = name_numbers_.try_emplace(
        absl::StrCat(op, ": ", absl::string_view(what.data(), what.size())),
        static_cast<uint32_t>(names_.size()));
    if (is_new) names_.push_back(found->first);
    array->name = found->second;
  });
}

// ---- cycles -----------------------------------------------------------------------------------

void MemoryRecorder::Ended(const RecordedCycle& ended) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = open_.find(ended.workspace);
  if (!running_ || found == open_.end()) return;
  const bool kept = Try([&] {
    OpenCycle cycle = std::move(found->second);
    for (const Array& request : cycle.requests) requests_.erase(request.id);
    open_.erase(found);
    const size_t count = cycle.requests.size();
    if (!cycle.complete || cycle.generation != ended.generation ||
        count != ended.released_after.size()) {
      ++dropped_cycles_;
      return;
    }
    const int64_t begin = cycle.requests.empty() ? Now() : cycle.requests.front().time, end = Now();
    std::vector<int64_t> times;
    for (const Array& request : cycle.requests) times.push_back(request.time - begin);
    for (size_t i = 0; i < count; ++i) {
      Array& request = cycle.requests[i];
      const uint32_t released = ended.released_after[i];
      request.time = times[i];
      request.id = 0;
      request.released_after = std::min<uint32_t>(released, static_cast<uint32_t>(count));
      // What is released after request n is gone for sure when the next one comes.
      request.died = released < count ? times[released] : end - begin;
      if (released == RecordedCycle::kAlive && !ended.owned && !ended.failed)
        request.flags |= ProfileArray::kLeaked;
    }
    Place& place = places_[ended.workspace];
    place.name.assign(ended.name.data(), ended.name.size());
    place.owner = ended.owner;
    place.device = ended.device;
    place.bytes = std::max(place.bytes, static_cast<int64_t>(ended.pages_bytes));
    const uint32_t kind = CycleKindOf(ended.workspace, std::move(cycle.requests), end - begin);
    const auto last = last_cycle_.find(ended.workspace);
    if (!HasRoom() && last != last_cycle_.end() && cycles_[last->second].kind == kind) {
      cycles_[last->second].end = end;
      ++cycles_[last->second].count;
      return;
    }
    last_cycle_[ended.workspace] = cycles_.size();
    cycles_.push_back({kind, 1, ended.generation, begin, end});
    ++records_;
  });
  if (!kept) ++dropped_cycles_;
}

}  // namespace tidepool::internal
