// What was recorded, as plain values with names.
#include <algorithm>
#include <cstring>

#include "absl/debugging/symbolize.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tidepool/memory/profile/recorder.h"

namespace tidepool::internal {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  const uint64_t x = (hash ^ value) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

// Frames between a request and whoever made it, which are the same for all.
bool IsOurs(absl::string_view function) {
  for (const char* const prefix :
       {"tidepool::internal::MemoryRecorder::", "tidepool::WorkspaceCore::", "tidepool::Place::",
        "tidepool::NewHeapBuffer", "tidepool::NewImportedBuffer", "tidepool::NDArray::NDArray",
        "tidepool::AllocateOnHeapHere", "tidepool::(anonymous namespace)::TellMade",
        "tidepool::BufferHandle"}) {
    if (absl::StartsWith(function, prefix)) return true;
  }
  return false;
}

// Of libraries, which say nothing of who made an array.
bool IsBetween(absl::string_view function) {
  return absl::StartsWith(function, "absl::") || absl::StartsWith(function, "std::") ||
         absl::StartsWith(function, "void std::");
}

// Within the call of an operator: what it takes beside its results is its scratch.
bool IsOfCall(absl::string_view function) {
  return function == "tidepool::(anonymous namespace)::Run" ||
         absl::StartsWith(function, "tidepool::(anonymous namespace)::Scratch") ||
         absl::StartsWith(function, "tidepool::RunKernel") ||
         function == "tidepool::DispatchUnrecorded";
}

std::string FunctionAt(void* address) {
  char name[512];
  // A return address: the call is before it.
  if (absl::Symbolize(static_cast<char*>(address) - 1, name, sizeof(name))) {
    absl::string_view function = name;
    absl::ConsumeSuffix(&function, "()");
    return std::string(function);
  }
  return absl::StrCat("0x", absl::Hex(reinterpret_cast<uintptr_t>(address)));
}

std::string TierOf(Device device) { return device == Host() ? "host memory" : "device memory"; }

constexpr auto kUnreferencedKind = static_cast<uint8_t>(MemoryKind::kUnreferenced);

// Steps that take more of an owner than there is (what a workspace used before the recording) come off the largest
// owner of that kind, so that no layer of a stack is below zero.
void KeepLayersAboveZero(std::vector<ProfileStep>& steps) {
  std::map<std::pair<uint32_t, uint8_t>, std::map<uint32_t, int64_t>> layers;
  for (ProfileStep& step : steps) {
    std::map<uint32_t, int64_t>& by_owner = layers[{step.device, step.kind}];
    if (step.bytes < 0 && by_owner[step.owner] + step.bytes < 0 && step.kind != kUnreferencedKind) {
      const auto largest =
          std::max_element(by_owner.begin(), by_owner.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (largest->second + step.bytes >= 0) step.owner = largest->first;
    }
    by_owner[step.owner] += step.bytes;
  }
}

}  // namespace

uint32_t MemoryRecorder::CycleKindOf(uint64_t workspace, std::vector<Array> requests,
                                     int64_t duration) {
  uint64_t hash = Mix(workspace, requests.size());
  for (const Array& request : requests) {
    hash = Mix(hash, static_cast<uint64_t>(request.bytes));
    hash = Mix(hash, static_cast<uint64_t>(request.offset) ^ uint64_t{request.stack} << 40);
    hash = Mix(hash, request.released_after ^ uint64_t{request.name} << 32 ^
                         uint64_t{request.flags} << 60);
  }
  std::vector<uint32_t>& same = kinds_by_hash_[hash];
  for (const uint32_t number : same) {
    const CycleKind& kind = cycle_kinds_[number];
    if (kind.workspace == workspace &&
        std::equal(kind.requests.begin(), kind.requests.end(), requests.begin(), requests.end(),
                   [](const Array& a, const Array& b) { return a.SameRequest(b); })) {
      return number;
    }
  }
  records_ += requests.size();
  requests.shrink_to_fit();
  cycle_kinds_.push_back({workspace, std::move(requests), duration});
  same.push_back(static_cast<uint32_t>(cycle_kinds_.size() - 1));
  return same.back();
}

ProfileData MemoryRecorder::Collect() const {
  std::lock_guard<std::mutex> lock(mutex_);
  ProfileData data;
  data.duration = duration_;
  data.began = began_;
  data.kinds = MemoryKindNames();
  absl::flat_hash_map<std::string, uint32_t> strings = {{"", 0}};
  const auto intern = [&](const std::string& text) {
    const auto [found, is_new] =
        strings.try_emplace(text, static_cast<uint32_t>(data.strings.size()));
    if (is_new) data.strings.push_back(text);
    return found->second;
  };

  absl::flat_hash_map<void*, std::string> functions;
  std::vector<uint32_t> sites;
  std::vector<bool> scratch;
  for (const Stack& stack : stacks_) {
    std::string site;
    bool begun = false, of_call = false;
    for (void* const frame : stack) {
      if (frame == nullptr) break;
      const auto [found, is_new] = functions.try_emplace(frame);
      if (is_new) found->second = FunctionAt(frame);
      if (IsBetween(found->second) || (!begun && IsOurs(found->second))) continue;
      if (!begun && IsOfCall(found->second)) {
        of_call = true;
        continue;
      }
      begun = true;
      absl::StrAppend(&site, site.empty() ? "" : " < ", found->second);
      if (found->second == "main") break;
    }
    sites.push_back(intern(site));
    scratch.push_back(of_call);
  }
  const uint32_t scratch_name = intern("scratch");
  std::vector<uint32_t> names;
  for (const std::string& name : names_) names.push_back(intern(name));
  absl::flat_hash_map<const MemoryOwner*, uint32_t> owners;
  const auto owner_of = [&](const MemoryOwner* owner) {
    const auto [found, is_new] = owners.try_emplace(owner);
    if (is_new) {
      if (owner == nullptr) {
        found->second = intern("(not itemised)");
      } else {
        const std::string tag = owner->Tag();
        found->second =
            intern(tag.empty() ? owner->Path() : absl::StrCat(owner->Path(), " #", tag));
      }
    }
    return found->second;
  };
  std::map<std::pair<int, int>, uint32_t> devices;
  const auto device_of = [&](Device device) {
    const auto [found, is_new] = devices.try_emplace({device.type.number(), device.index},
                                                     static_cast<uint32_t>(data.devices.size()));
    if (is_new) {
      data.devices.push_back(DeviceName(device));
      data.tiers.push_back(TierOf(device));
      const auto totals = devices_.find(found->first);
      data.device_peaks.push_back(totals != devices_.end() ? totals->second.peak : 0);
    }
    return found->second;
  };
  device_of(Host());
  for (const Step& step : steps_) {
    data.steps.push_back({step.time, step.bytes, device_of(step.device), owner_of(step.owner),
                          step.kind, step.at_start});
  }
  KeepLayersAboveZero(data.steps);

  std::map<uint64_t, uint32_t> places;
  for (const auto& [number, place] : places_) {
    places[number] = static_cast<uint32_t>(data.places.size());
    data.places.push_back(
        {intern(absl::StrCat("workspace ", place.name)), device_of(place.device), place.bytes});
  }
  std::map<uint32_t, uint32_t> heaps;  // by device
  const auto export_array = [&](const Array& array, uint32_t place) {
    return ProfileArray{array.time,   array.died,        array.bytes,        array.taken,
                        array.offset, names[array.name], sites[array.stack], owner_of(array.owner),
                        place,        array.kind,        array.flags};
  };
  for (const Array& array : arrays_) {
    const uint32_t device = device_of(array.device);
    const auto [heap, is_new] =
        heaps.try_emplace(device, static_cast<uint32_t>(data.places.size()));
    if (is_new)
      data.places.push_back({intern(absl::StrCat("heap of ", data.devices[device])), device, 0});
    data.arrays.push_back(export_array(array, heap->second));
  }
  for (const CycleKind& kind : cycle_kinds_) {
    ProfileCycleKind out;
    out.place = places.at(kind.workspace);
    out.owner = owner_of(places_.at(kind.workspace).owner);
    out.duration = kind.duration;
    for (const Array& request : kind.requests) {
      out.requests.push_back(export_array(request, out.place));
      ProfileArray& made = out.requests.back();
      if (made.name == 0 && scratch[request.stack]) made.name = scratch_name;
      // Where nobody claims it, it is the workspace's, as on the ledger.
      if (request.owner == &MemoryOwner::Process()) made.owner = out.owner;
      out.released_after.push_back(request.released_after);
    }
    MeasureCycleKind(out);
    data.cycle_kinds.push_back(std::move(out));
  }
  for (const Cycle& cycle : cycles_) {
    data.cycles.push_back({cycle.kind, cycle.count, cycle.generation, cycle.begin, cycle.end});
  }
  std::stable_sort(
      data.cycles.begin(), data.cycles.end(),
      [](const ProfileCycles& a, const ProfileCycles& b) { return a.begin < b.begin; });
  if (dropped_arrays_ > 0) {
    data.notes.push_back(absl::StrCat(dropped_arrays_, " arrays outside of cycles came after ",
                                      max_records_, " records and are in the totals only"));
  }
  if (dropped_cycles_ > 0) {
    data.notes.push_back(
        absl::StrCat(dropped_cycles_, " cycles are in the totals only, by the most they used"));
  }
  if (partial_cycles_ > 0) {
    data.notes.push_back(absl::StrCat(
        partial_cycles_, " cycles were open when the recording ended and are left out"));
  }
  if (coarse_since_ >= 0)
    data.notes.push_back("after that changes of the ledger are merged into steps");
  return data;
}

}  // namespace tidepool::internal
