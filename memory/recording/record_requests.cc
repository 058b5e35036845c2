#include "tidepool/memory/recording/record_requests.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/record_output.h"

namespace tidepool {
namespace {

using record::Context;
using record::Output;

// Numbers of names: owners by their index from 1 on, then devices.
constexpr uint32_t kFirstDevice = 1 << 17;
static_assert(kMaxMemoryOwners <= kFirstDevice / 2);  // and those that many names share

template <typename Text>
uint32_t Named(uint32_t id, const Text& text) noexcept {
  Output& output = Output::Global();
  if (output.HasName(id)) return id;
  try {
    const std::string name = text();
    output.Name(id, name.data(), name.size());
  } catch (const std::exception&) {
    output.Name(id, "?", 1);
  }
  return id;
}

uint32_t NameOf(const MemoryOwner& owner) noexcept {
  if (owner.index() >= kFirstDevice - 1) return 0;
  return Named(owner.index() + 1, [&] {
    const std::string tag = owner.Tag();
    return tag.empty() ? owner.Path() : absl::StrCat(owner.Path(), " #", tag);
  });
}

uint32_t NameOf(Device device) noexcept {
  if (device == Host()) return 0;
  const auto number = static_cast<uint32_t>(device.type.number());
  return Named(kFirstDevice + number * 256 + device.index, [&] { return DeviceName(device); });
}

void Write(Buffer& buffer) noexcept {
  Output& output = Output::Global();
  if (!output.Begin()) return;
  buffer.care.fetch_or(Buffer::kTraced, std::memory_order_relaxed);
  constexpr unsigned kAlignmentLog2 = std::countr_zero(kHeapAlignment);
  output.Allocated(
      buffer.id, buffer.bytes, kAlignmentLog2,
      {NameOf(MemoryOwner::Current()), NameOf(buffer.device), static_cast<uint8_t>(buffer.kind)});
}

void WriteCycle(const MemoryOwner& workspace, uint64_t generation, bool begins) noexcept {
  Output& output = Output::Global();
  if (output.Begin()) output.Cycle(begins, NameOf(workspace), generation);
}

class RequestRecorder final : public MemoryListener {
  // What is imported is not asked of anybody here.
  void Made(Buffer& buffer) noexcept override {
    if (!buffer.imported) Write(buffer);
  }
  void Requested(const RecordedCycleRequest& request) noexcept override { Write(*request.buffer); }
  // What is not traced was made before, or has been told of; so has what is dead.
  void Gone(const Buffer& buffer) noexcept override {
    const bool is_traced = (buffer.care.load(std::memory_order_relaxed) & Buffer::kTraced) != 0;
    if (is_traced && buffer.IsAlive()) Output::Global().Freed(buffer.id);
  }
  void Began(const MemoryOwner& workspace, uint64_t generation) noexcept override {
    WriteCycle(workspace, generation, /*begins=*/true);
  }
  void Left(const MemoryOwner& workspace, uint64_t generation) noexcept override {
    WriteCycle(workspace, generation, /*begins=*/false);
  }
};

constinit RequestRecorder recorder;

// While there is a record an index is one owner's. Not destroyed: a record may end after statics.
constinit std::atomic<const MemoryOwnersHold*> owners_held{nullptr};

void HoldOwners() { delete owners_held.exchange(new MemoryOwnersHold); }
void LetOwnersGo() noexcept { delete owners_held.exchange(nullptr); }

// Sums alone are known of what was there before: of each owner without those below it.
void TellLive() {
  constexpr unsigned kAlignmentLog2 = 0;
  std::map<std::pair<std::string, std::string>, const MemoryOwner*> owners;
  for (const MemoryOwner* owner : MemoryOwner::All()) owners[{owner->Path(), owner->Tag()}] = owner;
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  std::map<std::pair<std::string, const MemoryOwner*>, std::array<int64_t, kMemoryKinds>> own;
  for (const OwnerMemory& memory : snapshot.owners) {
    const MemoryOwner* const owner = owners[{memory.owner, memory.tag}];
    const std::string device = DeviceName(memory.device);
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const int64_t bytes = memory.kinds[kind].current_bytes;
      own[{device, owner}][kind] += bytes;
      if (owner != nullptr && owner->parent() != nullptr)
        own[{device, owner->parent()}][kind] -= bytes;
    }
  }
  for (const auto& [place, bytes] : own) {
    const auto& [device, owner] = place;
    const uint32_t name = owner != nullptr ? NameOf(*owner) : 0;
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const auto what = static_cast<MemoryKind>(kind);
      if (what == MemoryKind::kUnreferenced || what == MemoryKind::kWorkspace) continue;
      if (bytes[kind] <= 0) continue;
      Output::Global().WasLive(0, static_cast<uint64_t>(bytes[kind]), kAlignmentLog2,
                               {name, NameOf(DeviceNamed(device)), static_cast<uint8_t>(kind)});
    }
  }
}

}  // namespace

void StartRecording(const std::string& path) {
  const int error = Output::Global().Open(path.c_str(), record::Source::kArrays);
  if (error == EBUSY) {
    ThrowFailedPrecondition(absl::StrCat("record ", path, ": a record is being written to ",
                                         Output::Global().path(), ", expected none"));
  }
  if (error != 0) ThrowErrno(error, absl::StrCat("record ", path));
  try {
    HoldOwners();
    TellLive();
  } catch (...) {
    Output::Global().Close();
    LetOwnersGo();
    throw;
  }
  MemoryListener::Exchange(MemoryListener::kRecord, &recorder);
  MemoryTracing::SetRecords(true);
}

void StopRecording() noexcept {
  MemoryTracing::SetRecords(false);
  MemoryListener::Exchange(MemoryListener::kRecord, nullptr);
  Output::Global().Close();
  LetOwnersGo();
}

bool IsRecording() noexcept { return Output::Global().is_open(); }

std::string RecordingPath() { return IsRecording() ? Output::Global().path() : ""; }

}  // namespace tidepool
