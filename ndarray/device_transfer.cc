#include "tidepool/ndarray/device_transfer.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
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
  return device == Host() ||
         (ScopedProvider::Current() == nullptr &&
          !KernelRegistry::Global().Find(OpCode::kCopy, device.type, dtype).empty());
}

void Copy(const NDArray& from, NDArray& to) { Dispatch(OpCode::kCopy, {&from}, {&to}); }

void CopyDense(const NDArray& from, NDArray& to) {
  CopyBytes(to.device(), to.raw_data(), from.device(), from.raw_data(), BytesOf(to));
}

// A host array with the same gaps. What it is a view of has the bytes that lie in them.
NDArray AsItLies(const NDArray& array) {
  const auto [begin, end] = ExtentOf(array);
  const size_t bytes = static_cast<size_t>(end - begin);
  BufferHandle buffer = Place::Scratch(Host()).Allocate(bytes);
  CopyBytes(Host(), buffer->data, array.device(), begin, bytes);
  return NDArray::FromStrides(
      std::move(buffer), (array.raw_data() - begin) / static_cast<int64_t>(DTypeBytes(array.dtype())),
      array.shape(), absl::Span<const int64_t>(array.strides(), array.rank()), array.dtype());
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

void FillFromHost(double value, NDArray& to) {
  if (to.NumElements() == 0) return;
  const FillAttributes attributes{value};
  const auto fill = [&](NDArray& host) { Dispatch(OpCode::kFill, {}, {&host}, &attributes); };
  if (!to.is_dense()) return WriteThroughHost(to, fill);
  uint64_t bits = 0;
  StoreNumber(value, to.dtype(), &bits);
  const auto* pattern = reinterpret_cast<const std::byte*>(&bits);
  const size_t width = DTypeBytes(to.dtype());
  if (std::all_of(pattern, pattern + width, [&](std::byte b) { return b == pattern[0]; })) {
    return GetDeviceProvider(to.device(), "fill").Fill(to.raw_data(), pattern[0], BytesOf(to));
  }
  NDArray host(to.shape(), to.dtype(), Place::Scratch(Host()));
  fill(host);
  CopyDense(host, to);
}

void WriteElements(NDArray& to, const std::function<void(std::byte* first)>& write) {
  if (to.NumElements() == 0) return;
  if (to.device() == Host()) return write(to.raw_data());
  NDArray host(to.shape(), to.dtype(), Place::Scratch(Host()));
  write(host.raw_data());
  CopyDense(host, to);
}

void ReadFromDevice(const NDArray& array, const std::byte* at, size_t bytes, void* out) {
  CopyBytes(Host(), static_cast<std::byte*>(out), array.device(), at, bytes);
}

void* HostCopyData(const NDArray& array, const char* what, bool) {
  ThrowFailedPrecondition(absl::StrCat("Op [", what, "]: the array of shape ",
                                       array.shape().ToString(), " is on ",
                                       DeviceName(array.device()), "; To(Host()) copies it"));
}

}  // namespace tidepool
