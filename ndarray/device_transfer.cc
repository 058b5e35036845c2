#include "tidepool/ndarray/device_transfer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/pins.h"
#include "tidepool/memory/provider/addresses_only.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/queue_use.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

size_t BytesOf(const NDArray& array) {
  return static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype());
}

// On the device itself, copying elements of that type.
bool HasCopyKernel(Device device, DType dtype) {
  return device == Host() || (ScopedProvider::Current() == nullptr &&
                              !KernelRegistry::Find(OpCode::kCopy, device.type, dtype).empty());
}

void Copy(const NDArray& from, NDArray& to) { Dispatch(OpCode::kCopy, {&from}, {&to}); }

size_t OffsetOf(const NDArray& array, const std::byte* at) {
  return static_cast<size_t>(at - array.buffer()->data);
}

void AddUse(const NDArray& array, bool writes, const char* operation, const char* operands,
            int position, std::vector<BufferMirror::DeviceUse>& uses) {
  if (!array.buffer() || BufferMirror::Find(*array.buffer().get()) == nullptr ||
      array.NumElements() == 0) {
    return;
  }
  const auto [begin, end] = ExtentOf(array);
  uses.push_back({array.buffer().get(), OffsetOf(array, begin), OffsetOf(array, end), writes,
                  operation, OperandName(operands, position)});
}

// Before a copy of the device's.
void Prepare(const NDArray& array, bool writes) {
  std::vector<BufferMirror::DeviceUse> uses;
  AddUse(array, writes, "copy", "X,Z", writes ? 1 : 0, uses);
  if (!uses.empty()) BufferMirror::PrepareForDevice(uses);
}

// Of a dry run, whose device has nothing there.
bool IsNowhere(const NDArray& array) {
  return array.device() != Host() && AddressesAt(array.raw_data()) != nullptr;
}

void CopyDense(const NDArray& from, NDArray& to) {
  if (to.device() == Host()) {
    return ReadFromDevice(from, from.raw_data(), BytesOf(to), to.raw_data());
  }
  if (from.device() == Host()) {
    RefuseWhileCapturing("copy", "replays would not copy what the host has then; copy it before");
  }
  if (from.device() != Host() && from.device() != to.device()) {
    if (IsNowhere(from) || IsNowhere(to)) return;
    RefuseWhileCapturing("copy", "replays would not copy between devices; copy it before");
    Prepare(from, false);
    Prepare(to, true);
    return CopyBetweenDevices(*to.buffer().get(), to.raw_data(), *from.buffer().get(),
                              from.raw_data(), BytesOf(to));
  }
  Prepare(from, false);
  Prepare(to, true);
  CopyBytes(to.device(), to.raw_data(), from.device(), from.raw_data(), BytesOf(to));
}

// A host array with the same gaps. What it is a view of has the bytes that lie in them.
NDArray AsItLies(const NDArray& array) {
  const auto [begin, end] = ExtentOf(array);
  const size_t bytes = static_cast<size_t>(end - begin);
  BufferHandle buffer = Place::Scratch(Host()).Allocate(bytes);
  ReadFromDevice(array, begin, bytes, buffer->data);
  return NDArray::FromStrides(
      std::move(buffer),
      (array.raw_data() - begin) / static_cast<int64_t>(DTypeBytes(array.dtype())), array.shape(),
      absl::Span<const int64_t>(array.strides(), array.rank()), array.dtype());
}

NDArray OnHost(const NDArray& from, bool may_use_kernel) {
  if (from.device() == Host()) return from;
  NDArray dense = from;
  if (!from.is_dense()) {
    if (!may_use_kernel || !HasCopyKernel(from.device(), from.dtype())) return AsItLies(from);
    dense = from.CopyTo(Place::Scratch(from.device()));
  }
  NDArray host(from.shape(), from.dtype(), Place::Scratch(Host()));
  CopyDense(dense, host);
  return host;
}

// Of an array with gaps on a device: the gaps are sent back as they came.
template <typename Write>
void WriteThroughHost(NDArray& to, Write write) {
  NDArray host = AsItLies(to);
  write(host);
  Prepare(to, true);
  const auto [begin, end] = ExtentOf(to);
  CopyBytes(to.device(), to.raw_data() + (begin - to.raw_data()), Host(), host.buffer()->data,
            static_cast<size_t>(end - begin));
}

}  // namespace

void CopyAcross(const NDArray& from, NDArray& to) {
  if (to.NumElements() == 0) return;
  if (from.dtype() == to.dtype() && from.shape() == to.shape() && from.is_dense() &&
      to.is_dense()) {
    return CopyDense(from, to);
  }
  // On one device: it has no kernel that takes these operands.
  const bool may_use_kernel = from.device() != to.device();
  const NDArray host = OnHost(from, may_use_kernel);
  if (to.device() == Host()) return Copy(host, to);
  if (to.is_dense()) {
    if (host.dtype() == to.dtype() && host.shape() == to.shape() && host.is_dense()) {
      return CopyDense(host, to);
    }
    NDArray dense(to.shape(), to.dtype(), Place::Scratch(Host()));
    Copy(host, dense);
    return CopyDense(dense, to);
  }
  if (may_use_kernel && HasCopyKernel(to.device(), to.dtype())) {
    NDArray dense(to.shape(), to.dtype(), Place::Scratch(to.device()));
    CopyAcross(host, dense);
    return Copy(dense, to);
  }
  WriteThroughHost(to, [&](NDArray& there) { Copy(host, there); });
}

void CopyInDryRun(const NDArray& from, NDArray& to) {
  if (from.dtype() != to.dtype() || from.shape() != to.shape() || !from.is_dense() ||
      !to.is_dense() || to.NumElements() == 0)
    return;
  if (IsNowhere(from) && to.device() == Host()) return CopyDense(from, to);
  if (!IsFloating(to.dtype()) && from.device() == Host() && IsNowhere(to))
    std::memcpy(HostCopyData(to, "copy", /*to_write=*/true), from.raw_data(), BytesOf(to));
}

void FillFromHost(double value, NDArray& to) {
  if (to.NumElements() == 0) return;
  const FillAttributes attributes{value};
  const auto fill = [&](NDArray& host) { Dispatch(OpCode::kFill, {}, {&host}, &attributes); };
  if (!to.is_dense()) return WriteThroughHost(to, fill);
  uint64_t bits = 0;
  StoreNumber(value, to.dtype(), &bits);
  const auto* pattern = reinterpret_cast<const std::byte*>(&bits);
  if (IsNowhere(to)) return;
  const size_t width = DTypeBytes(to.dtype());
  if (std::all_of(pattern, pattern + width, [&](std::byte b) { return b == pattern[0]; })) {
    Prepare(to, true);
    DeviceProvider& device = GetDeviceProvider(to.device(), "fill");
    return AskProvider("fill", to.device(),
                       [&] { device.Fill(to.raw_data(), pattern[0], BytesOf(to)); });
  }
  NDArray host(to.shape(), to.dtype(), Place::Scratch(Host()));
  fill(host);
  CopyDense(host, to);
}

void WriteElements(NDArray& to, const std::function<void(std::byte* first)>& write) {
  if (to.NumElements() == 0) return;
  PinScope pins;  // its owner may be closed on another thread meanwhile
  pins.Pin(to.buffer().get());
  pins.Publish();
  to.CheckAlive("write_elements", "Z");
  if (to.device() == Host()) return write(to.raw_data());
  NDArray host(to.shape(), to.dtype(), Place::Scratch(Host()));
  write(host.raw_data());
  CopyDense(host, to);
  to.MarkWritten();
}

void ReadFromDevice(const NDArray& array, const std::byte* at, size_t bytes, void* out) {
  RefuseWhileCapturing("read", "nothing of it has been done when the host would read");
  if (const Buffer* buffer = array.buffer().get()) {
    if (BufferMirror* mirror = BufferMirror::Find(*buffer)) {
      const size_t begin = OffsetOf(array, at);
      if (mirror->ReadIfOnHost(begin, bytes, out, "read")) return;
      // These bytes, whatever else of the array is in use.
      const BufferMirror::DeviceUse use{
          array.buffer().get(), begin, begin + bytes, false, "read", "X"};
      BufferMirror::PrepareForDevice({&use, 1});
    }
  }
  CopyBytes(Host(), static_cast<std::byte*>(out), array.device(), at, bytes);
  if (array.buffer()) ThrowValueFaultsOf(*array.buffer().get());
}

void PrepareMirrors(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs) {
  std::vector<BufferMirror::DeviceUse> uses;
  const OperatorInfo& info = Info(op);
  int position = 0;
  for (const NDArray* input : inputs) {
    if (input != nullptr) AddUse(*input, false, info.name, info.inputs, position, uses);
    ++position;
  }
  position = 0;
  for (const NDArray* output : outputs) {
    AddUse(*output, true, info.name, info.outputs, position++, uses);
  }
  if (!uses.empty()) BufferMirror::PrepareForDevice(uses);
}

void PrepareMirrors(const char* operation, absl::Span<const NDArray* const> reads,
                    absl::Span<NDArray* const> writes) {
  std::vector<BufferMirror::DeviceUse> uses;
  for (const NDArray* array : reads) {
    if (array != nullptr) AddUse(*array, false, operation, "reads", 0, uses);
  }
  for (const NDArray* array : writes) {
    if (array != nullptr) AddUse(*array, true, operation, "writes", 0, uses);
  }
  if (!uses.empty()) BufferMirror::PrepareForDevice(uses);
}

void SendToDevice(const char* operation, absl::Span<const NDArray* const> arrays) {
  PinScope pins;
  std::vector<const NDArray*> there;
  for (const NDArray* array : arrays) {
    if (array == nullptr || !array->is_defined() || array->device() == Host()) continue;
    there.push_back(array);
    pins.Pin(array->buffer().get());
  }
  pins.Publish();
  for (const NDArray* array : there) array->CheckAlive(operation, "X");
  PrepareMirrors(operation, there, {});
}

void* HostCopyData(const NDArray& array, const char* what, bool to_write) {
  if (array.NumElements() == 0) return nullptr;
  RefuseWhileCapturing(what, "nothing of it has been done when the host would look");
  PinScope pins;  // who closes it on another thread meanwhile leaves its mirror to this one
  pins.Pin(array.buffer().get());
  pins.Publish();
  array.CheckAlive(what, "X");
  const size_t begin = OffsetOf(array, array.raw_data());
  return BufferMirror::Of(*array.buffer().get())
             .OnHost(to_write ? MirrorEvent::kHostWrite : MirrorEvent::kHostRead, begin,
                     begin + BytesOf(array), what) +
         begin;
}

}  // namespace tidepool
