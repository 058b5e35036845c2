// Where arrays are made, and where results of operators are.
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/ownership/owner_traces.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

Place Place::In(Workspace& workspace) {
  return Place(Where::kWorkspace, MemoryKind::kAllocated, WorkspaceRef(*workspace.core()));
}

Place Place::Here() {
  const WorkspaceCore* core = CurrentPlace();
  Place place(Where::kHeap, MemoryKind::kAllocated);
  if (core != nullptr) {
    place = Place(Where::kWorkspace, MemoryKind::kAllocated, WorkspaceRef(*core));
  }
  if (current_owner.ref != kHandlesOwn) place.owner_ = current_owner.ref;
  return place;
}

Place Place::Of(const Ownership& owner) {
  if (owner.is_null()) return Scratch();
  Place place(Where::kOwner, MemoryKind::kAllocated);
  place.owner_ = owner.ref().bits();
  if (place.owner_ == 0) ThrowFailedPrecondition("place: this manager was moved from");
  return place;
}

uint64_t Place::Owner() const {
  const uint64_t owner = where_ == Where::kCurrent ? current_owner.ref : owner_;
  return owner == kHandlesOwn ? 0 : owner;
}

Device Place::DeviceOf(WorkspaceRef workspace) const {
  const WorkspaceCore* const core = workspace.OpenHere();
  return core != nullptr ? core->memory_device() : Host();
}

// As Allocate and AllocateFor decide.
Device Place::device() const {
  if (wants_device_ || where_ == Where::kHeap) return device_;
  if (where_ == Where::kWorkspace) return DeviceOf(workspace_);
  if (const uint64_t owner = Owner(); owner != 0 && where_ != Where::kScratch) {
    const OwnerNode& node = *NodeOf(owner);
    if (where_ == Where::kOwner && node.place == NodePlace::kWorkspace)
      return DeviceOf(node.workspace);
    if (where_ == Where::kOwner && node.place == NodePlace::kHeap) return node.device;
    if (node.place != NodePlace::kWorkspace && node.device != Host()) return node.device;
  }
  const WorkspaceCore* const core = CurrentPlace();
  return core != nullptr ? core->memory_device() : Host();
}

BufferHandle Place::Allocate(size_t bytes) const {
  switch (where_) {
    case Where::kCurrent:
    case Where::kScratch:
      return AllocateCurrent(bytes);
    case Where::kHeap:
      return BufferHandle(NewHeapBuffer(bytes, kHeapAlignment, kind_, device_));
    case Where::kWorkspace:
      return AllocateIn(workspace_, bytes);
    case Where::kOwner: {
      const OwnerNode& owner = *NodeOf(owner_);
      if (owner.place == NodePlace::kWorkspace) return AllocateIn(owner.workspace, bytes);
      if (owner.place == NodePlace::kHeap || !(owner.device == Host())) {
        return BufferHandle(
            NewHeapBuffer(bytes, kHeapAlignment, kind_, wants_device_ ? device_ : owner.device));
      }
      return AllocateCurrent(bytes);
    }
  }
  return BufferHandle(NewHeapBuffer(bytes, kHeapAlignment, kind_, device_));
}

BufferHandle Place::AllocateIn(WorkspaceRef workspace, size_t bytes) const {
  WorkspaceCore* const core = workspace.OpenHere();
  if (wants_device_ &&
      (core != nullptr ? core->memory_device() != device_ : workspace.IsOnAnotherDevice(device_))) {
    return BufferHandle(NewHeapBuffer(bytes, kHeapAlignment, kind_, device_));
  }
  if (core == nullptr) {
    workspace.ThrowNotOpenHere(
        where_ == Where::kOwner ? absl::StrCat("place of ", DescribeNode(owner_)) : "place");
  }
  if (!core->passes_through()) return BufferHandle(core->Allocate(bytes));
  // One that is switched off passes its requests through to the heap.
  return BufferHandle(NewHeapBuffer(bytes, std::max(kHeapAlignment, core->alignment()), kind_,
                                    core->memory_device()));
}

BufferHandle Place::AllocateCurrent(size_t bytes) const {
  if (wants_device_) {
    const WorkspaceCore* core = CurrentPlace();
    // The heap that AllocateHere takes is that of a workspace that is switched off.
    if (core == nullptr || core->memory_device() != device_) {
      return BufferHandle(NewHeapBuffer(bytes, kHeapAlignment, kind_, device_));
    }
  }
  return BufferHandle(AllocateHere(bytes));
}

// Checked before anything is allocated; and again after, as the manager may close meanwhile.
BufferHandle Place::AllocateFor(uint64_t owner, size_t bytes, const Shape& shape,
                                DType dtype) const {
  const auto what = [&] {
    std::string text = op_ != nullptr ? absl::StrCat("Op [", op_, "]: a result") : "a new array";
    absl::StrAppend(&text, " of shape ", shape.ToString(), " ", DTypeName(dtype));
    if (op_ != nullptr) {
      absl::StrAppend(&text, " would belong where argument ",
                      names_ != nullptr ? OperandName(names_, operand_) : std::to_string(operand_),
                      " does");
    }
    return text;
  };
  for (;;) {
    if (!MayOwn(*NodeOf(owner), owner)) CheckMayOwn(owner, bytes, what());
    // The entered manager's device, where its place is not said otherwise.
    const OwnerNode& node = *NodeOf(owner);
    const bool on_its_device = where_ == Where::kCurrent && !wants_device_ &&
                               node.device != Host() && node.place != NodePlace::kWorkspace;
    BufferHandle buffer = (on_its_device ? OnDevice(node.device) : *this).Allocate(bytes);
    if (!LinkNew(buffer.get(), owner)) continue;
    if (MemoryTracing::enabled()) {
      internal::TraceOwned(*buffer.get(), absl::StrCat(DTypeName(dtype), " ", shape.ToString()));
    }
    return buffer;
  }
}

NDArray::NDArray(const Shape& shape, DType dtype, Place place)
    : dtype_(dtype), defined_(true), shape_(shape) {
  shape.SetDenseStrides(strides_);
  const int64_t count = shape.NumElements();
  if (count == 0) {
    empty_on_ = place.device();
    if (empty_on_ != Host()) devices_in_use.store(true, std::memory_order_relaxed);
    return;
  }
  const size_t bytes = static_cast<size_t>(count) * DTypeBytes(dtype);
  const uint64_t owner = place.Owner();
  buffer_ = owner == 0 ? place.Allocate(bytes) : place.AllocateFor(owner, bytes, shape, dtype);
  data_ = buffer_->data;
  // Nobody has written it: nothing of it needs to be copied (memory/mirroring).
  if (buffer_->device != Host()) buffer_->version.store(0, std::memory_order_relaxed);
}

namespace {

// Where the first operand with elements is; where none has any, the first one that is on a device.
template <typename At>
std::optional<Device> DeviceOfOperands(size_t count, At at) {
  std::optional<Device> device;
  for (size_t i = 0; i < count; ++i) {
    const NDArray* const operand = at(i);
    if (operand == nullptr) continue;
    if (operand->NumElements() != 0) return operand->device();
    if (!device.has_value() || *device == Host()) device = operand->device();
  }
  return device;
}

}  // namespace

// `at(i)` is the i-th operand; null: absent.
template <typename At>
Place Place::OfOperands(const char* op, const char* names, size_t count, At at) {
  const std::optional<Device> device = DeviceOfOperands(count, at);
  // Whoever is refused is the operator, before its result's memory is.
  if (device.has_value() && *device != Host() && IsLost(*device)) [[unlikely]]
    ThrowLost(*device, absl::StrCat("Op [", op, "]"));
  Place place = Current();
  if (current_owner.ref == 0) {
    for (size_t i = 0; i < count && i < UINT8_MAX; ++i) {
      const NDArray* const operand = at(i);
      const Buffer* buffer = operand != nullptr ? operand->buffer().get() : nullptr;
      if (buffer == nullptr || buffer->care.load(std::memory_order_relaxed) == 0) continue;
      const uint64_t owner = CurrentNodeOf(*buffer);
      if (owner == 0) continue;
      place = Place(Where::kOwner, MemoryKind::kAllocated);
      place.owner_ = owner;
      place.op_ = op;
      place.names_ = names;
      place.operand_ = static_cast<uint8_t>(i);
      break;
    }
  }
  return device.has_value() ? place.OnDevice(*device) : place;
}

Place PlaceOfOperands(const char* op, const char* names,
                      absl::Span<const NDArray* const> operands) {
  return Place::OfOperands(op, names, operands.size(), [&](size_t i) { return operands[i]; });
}

Place ResultPlace(const char* op, absl::Span<const NDArray> operands) {
  return Place::OfOperands(op, nullptr, operands.size(), [&](size_t i) { return &operands[i]; });
}

}  // namespace tidepool
