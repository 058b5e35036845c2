#include "tidepool/ndarray/io/dlpack.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/ownership/owner_node.h"
#include "tidepool/memory/ownership/owner_traces.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/device_transfer.h"
#include "tidepool/ndarray/io/dlpack_devices.h"
#include "tidepool/ndarray/io/dlpack_streams.h"
#include "tidepool/ndarray/io/release_in_turn.h"

namespace tidepool {
namespace {

constexpr uint8_t kCodeOfBool = 6;  // named kDLBool in later versions of the header

template <typename Tensor>
struct Exported {
  Exported(const NDArray& exported, bool read_only)
      : array(exported), bytes(exported.buffer()), is_read_only(read_only) {}
  // On any thread, also one that is ending.
  ~Exported() {
    Buffer* const buffer = array.buffer().get();
    if (buffer == nullptr || buffer->device == Host()) return;
    if (stream.has_value()) stream->TakeBack(buffer, !is_read_only);
    if (BufferMirror* const mirror = BufferMirror::Find(*buffer); mirror != nullptr) {
      mirror->NoteWrittenOutside();  // the hold keeps it
    }
  }

  std::optional<internal::DLPackStream> stream;  // the last to go: its queue's number stands in the buffer
  NDArray array;
  HeldBytes bytes;  // also when the array is closed
  const bool is_read_only;
  Tensor tensor = {};
  int64_t strides[kMaxRank];
};

// What a tensor of a device's stream is taken over with.
struct Imported {
  void* tensor;
  void (*release)(void* tensor);
  internal::DLPackStream stream;  // keeps the queue that is the buffer's home

  static void Release(void* context) {
    const std::unique_ptr<Imported> imported(static_cast<Imported*>(context));
    imported->release(imported->tensor);
  }
};

DLDataType TypeOf(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * DTypeBytes(dtype));
  if (dtype == DType::kBool) return {kCodeOfBool, bits, 1};
  if (dtype == DType::kBFloat16) return {kDLBfloat, bits, 1};
  if (IsUnsigned(dtype)) return {kDLUInt, bits, 1};
  return {static_cast<uint8_t>(IsFloating(dtype) ? kDLFloat : kDLInt), bits, 1};
}

DType TypeOf(const DLDataType& type) {
  for (int i = 0; i < kDTypes; ++i) {
    const DLDataType ours = TypeOf(static_cast<DType>(i));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) {
      return static_cast<DType>(i);
    }
  }
  ThrowUnimplemented(absl::StrCat("from_dlpack: found elements of code ", type.code, ", ", type.bits,
                                  " bits, ", type.lanes,
                                  " lanes, expected f16, bf16, f32, f64, i8 to i64, u8 to u64 or bool"));
}

template <typename Tensor>
void Release(void* tensor) {
  auto* const managed = static_cast<Tensor*>(tensor);
  if (managed->deleter != nullptr) managed->deleter(managed);
}

void SetVersion(DLManagedTensor*, bool, bool) {}
void SetVersion(DLManagedTensorVersioned* tensor, bool read_only, bool is_copied) {
  tensor->version = {kDLPackMajor, kDLPackMinor};
  tensor->flags = (read_only ? kDLPackReadOnly : 0) | (is_copied ? kDLPackIsCopied : 0);
}

bool IsReadOnly(const DLManagedTensor&) { return false; }
bool IsReadOnly(const DLManagedTensorVersioned& tensor) {
  return (tensor.flags & kDLPackReadOnly) != 0;
}

void CheckVersion(const DLManagedTensor&) {}
void CheckVersion(const DLManagedTensorVersioned& tensor) {
  if (tensor.version.major == kDLPackMajor) return;
  ThrowUnimplemented(absl::StrCat("from_dlpack: found a tensor of DLPack version ",
                                  tensor.version.major, ".", tensor.version.minor, ", expected ",
                                  kDLPackMajor, ".x; its other fields may lie elsewhere"));
}

// Of what comes in. kDLCUDAHost is the host's memory, page-locked.
const DLPackDevice& EntryOf(const DLDevice& found, Device* device) {
  // As the number that stands there: one that no enumerator has may not be read as one.
  int32_t number;
  static_assert(sizeof(number) == sizeof(found.device_type));
  std::memcpy(&number, &found.device_type, sizeof(number));
  const bool is_page_locked = number == int32_t{kDLCUDAHost};
  const DLPackDevice* const entry = FindDLPackDevice(is_page_locked ? int32_t{kDLCPU} : number);
  if (entry == nullptr) {
    ThrowUnimplemented(absl::StrCat("from_dlpack: found a tensor on device type ",
                                    number, ", expected one of ",
                                    DescribeDLPackDevices(),
                                    " or 3 (page-locked host memory of CUDA); DLPackDeviceRegistrar adds one"));
  }
  if (entry->type == DeviceType::kHost) {
    // There is one; page-locked memory may say of which device's driver it is.
    const int most = is_page_locked ? kMaxDevicesPerType - 1 : 0;
    if (found.device_id < 0 || found.device_id > most) {
      ThrowInvalidArgument(absl::StrCat("from_dlpack: found a tensor on number ", found.device_id, " of ",
                                        most == 0 ? "the host" : "CUDA's page-locked host memory", ", expected 0",
                                        most == 0 ? "" : absl::StrCat(" to ", most)));
    }
    return *entry;
  }
  if (found.device_id < 0 || found.device_id >= kMaxDevicesPerType) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found a tensor on number ", found.device_id, " of ",
                                      DeviceTypeName(entry->type), ", expected 0 to ",
                                      kMaxDevicesPerType - 1));
  }
  *device = {entry->type, static_cast<uint8_t>(found.device_id)};
  GetDeviceProvider(*device, "from_dlpack");
  CheckNotLost(*device, "from_dlpack");
  return *entry;
}

// The manager's that is entered on this thread, if any, as what is made here is.
void GiveToEnteredOwner(Buffer* buffer, const Shape& shape, DType dtype) {
  const uint64_t owner = current_owner.ref;
  if (owner == 0 || owner == kHandlesOwn) return;
  try {
    while (!LinkNew(buffer, owner)) {
      CheckMayOwn(owner, buffer->bytes, absl::StrCat("from_dlpack: an array of shape ",
                                                     shape.ToString(), " ", DTypeName(dtype)));
    }
  } catch (...) {
    buffer->outside.release_imported = nullptr;  // the tensor is not taken over
    throw;
  }
  if (MemoryTracing::enabled()) {
    internal::TraceOwned(*buffer, absl::StrCat(DTypeName(dtype), " ", shape.ToString()));
  }
}

// The array, or the copy that is asked for.
NDArray ToBeExported(const NDArray& array, const DLPackExport& how) {
  array.CheckAlive("to_dlpack", "X");
  if (how.copy) return array.CopyTo(Place::On(array.device()));
  if (array.IsAttached()) {
    ThrowFailedPrecondition(absl::StrCat(
        "Op [to_dlpack] X is an array of workspace [", array.buffer()->owner->WorkspaceId(),
        "], whose cycle would end under its other owner; Detach() it first"));
  }
  return array;
}

template <typename Tensor>
Tensor* Export(const NDArray& array, const DLPackExport& how) {
  // Before its bytes count as written by others, which the host's copy would be older than.
  if (array.device() != Host()) CheckNotLost(array.device(), "Op [to_dlpack]");
  const NDArray shared = ToBeExported(array, how);
  const Device device = shared.device();
  const DLPackDevice* const entry = FindDLPackDevice(device.type);
  if (entry == nullptr) {
    ThrowUnimplemented(absl::StrCat("Op [to_dlpack] X is on ", DeviceName(device),
                                    ", expected an array of a type that DLPack has a number for: ",
                                    DescribeDLPackDevices(), "; DLPackDeviceRegistrar adds one"));
  }
  const bool read_only = how.read_only || (shared.buffer() && shared.buffer()->read_only);
  if (read_only && std::is_same_v<Tensor, DLManagedTensor>) {
    ThrowFailedPrecondition(
        "Op [to_dlpack] X is to be read only, which a tensor without a version does not say; "
        "ToDLPackVersioned does, and a copy may be written to");
  }
  auto exported = std::make_unique<Exported<Tensor>>(shared, read_only);
  shared.CheckAlive("to_dlpack", "X");  // may have been closed before its bytes were held
  if (device != Host()) {
    RefuseWhileCapturing("to_dlpack", "replays would not order it behind what they do");
  }
  // Taken back only once it has been given away.
  internal::DLPackStream stream("to_dlpack", *entry, device, how.stream);
  if (device != Host()) {
    const NDArray* const read[] = {&exported->array};
    PrepareMirrors("to_dlpack", read, {});
    stream.GiveAway(shared.buffer().get(), !read_only);
    exported->stream.emplace(std::move(stream));
  }
  const NDArray& held = exported->array;
  std::copy_n(held.strides(), held.rank(), exported->strides);
  DLTensor& tensor = exported->tensor.dl_tensor;
  tensor.data = held.raw_data();
  tensor.device = {static_cast<DLDeviceType>(entry->code), device.index};
  tensor.ndim = held.rank();
  tensor.dtype = TypeOf(held.dtype());
  tensor.shape = const_cast<int64_t*>(held.shape().dims());
  tensor.strides = exported->strides;
  tensor.byte_offset = 0;
  SetVersion(&exported->tensor, read_only, how.copy);
  exported->tensor.manager_ctx = exported.get();
  exported->tensor.deleter = [](Tensor* self) {
    delete static_cast<Exported<Tensor>*>(self->manager_ctx);
  };
  return &exported.release()->tensor;
}

// The elements of a tensor and the bytes from the lowest to the highest of them.
struct Layout {
  DType dtype;
  Shape shape;
  int64_t strides[kMaxRank];
  std::byte* lowest;
  size_t bytes;
  int64_t first;  // element, from the lowest
};

Layout LayoutOf(const DLTensor& tensor) {
  const DType dtype = TypeOf(tensor.dtype);
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found rank ", tensor.ndim, " without sizes"));
  }
  if (tensor.ndim > kMaxRank) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found rank ", tensor.ndim, ", expected at most ", kMaxRank));
  }
  Layout layout{dtype, Shape(absl::Span<const int64_t>(tensor.shape, tensor.ndim)), {}, nullptr, 0, 0};
  const Shape& shape = layout.shape;
  shape.SetDenseStrides(layout.strides);
  if (shape.NumElements() == 0) return layout;
  if (tensor.strides != nullptr) {
    for (int i = 0; i < shape.rank(); ++i) {
      // Of an axis of one element it may be anything and means nothing: what nobody adds up cannot
      // overflow.
      if (shape[i] > 1) layout.strides[i] = tensor.strides[i];
    }
  }
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  __int128 lowest = 0, highest = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    const __int128 reach = static_cast<__int128>(shape[i] - 1) * layout.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const __int128 bytes = (highest - lowest + 1) * width;
  if (bytes > kMostCountedBytes || tensor.data == nullptr) {
    ThrowInvalidArgument(absl::StrCat(
        "from_dlpack: found shape ", shape.ToString(), " with strides [",
        absl::StrJoin(absl::Span<const int64_t>(layout.strides, shape.rank()), ", "), "]",
        tensor.data == nullptr ? " and no data" : ", which no memory holds"));
  }
  if (tensor.byte_offset > static_cast<uint64_t>(kMostCountedBytes)) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found byte_offset ", tensor.byte_offset, ", expected at most ",
                                      kMostCountedBytes));
  }
  // As numbers, because pointers that leave the address space are not even to be computed.
  const __int128 first = __int128{reinterpret_cast<uintptr_t>(tensor.data)} + tensor.byte_offset;
  if (first % width != 0) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found data that is not aligned to its elements of ",
                                      width, " bytes"));
  }
  const __int128 begin = first + lowest * width;
  if (begin <= 0 || begin + bytes > __int128{UINTPTR_MAX}) {
    ThrowInvalidArgument(absl::StrCat(
        "from_dlpack: found ", static_cast<int64_t>(bytes), " bytes of elements about ",
        absl::Hex(reinterpret_cast<uintptr_t>(tensor.data)), " with byte_offset ",
        tensor.byte_offset, ", expected them within the address space"));
  }
  layout.lowest = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(begin));
  layout.bytes = static_cast<size_t>(bytes);
  layout.first = -static_cast<int64_t>(lowest);
  return layout;
}

// Kernels take bools for 0 or 1. Each byte is looked at once, however often the strides come by.
void CheckBools(const Layout& layout) {
  uint64_t elements = 1;
  for (int i = 0; i < layout.shape.rank(); ++i) {
    if (layout.strides[i] != 0) elements *= static_cast<uint64_t>(layout.shape[i]);  // below 2^59, as all together
  }
  if (elements > layout.bytes) {
    // They lie over one another, and may be very many in few bytes.
    for (size_t i = 0; i < layout.bytes; ++i) {
      const auto value = std::to_integer<int>(layout.lowest[i]);
      if (value <= 1) continue;
      ThrowInvalidArgument(absl::StrCat("from_dlpack: found a bool of ", value, " at byte ", i,
                                        " of elements that overlap, expected 0 or 1"));
    }
    return;
  }
  int64_t at[kMaxRank] = {};
  int64_t element = layout.first;
  for (;;) {
    const auto value = std::to_integer<int>(layout.lowest[element]);
    if (value > 1) {
      ThrowInvalidArgument(absl::StrCat("from_dlpack: found a bool of ", value, " at [",
                                        absl::StrJoin(absl::Span<const int64_t>(at, layout.shape.rank()), ", "),
                                        "], expected 0 or 1"));
    }
    int axis = layout.shape.rank() - 1;
    for (; axis >= 0; --axis) {
      if (layout.strides[axis] == 0) continue;
      element += layout.strides[axis];
      if (++at[axis] < layout.shape[axis]) break;
      element -= layout.strides[axis] * layout.shape[axis];
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <typename Tensor>
NDArray Import(Tensor* managed, std::optional<int64_t> number) {
  if (managed == nullptr) ThrowInvalidArgument("from_dlpack: found no tensor");
  CheckVersion(*managed);
  const DLTensor& tensor = managed->dl_tensor;
  Device device;
  const DLPackDevice& entry = EntryOf(tensor.device, &device);
  const Layout layout = LayoutOf(tensor);
  if (layout.shape.NumElements() == 0) {
    Release<Tensor>(managed);
    return NDArray(layout.shape, layout.dtype);
  }
  if (layout.dtype == DType::kBool && device == Host()) CheckBools(layout);
  ImportedMemory memory{.data = layout.lowest,
                        .bytes = layout.bytes,
                        .release = &internal::ReleaseInTurn<&Release<Tensor>>,
                        .context = managed,
                        .read_only = IsReadOnly(*managed)};
  internal::DLPackStream stream("from_dlpack", entry, device, number);
  std::unique_ptr<Imported> imported;
  if (device != Host()) {
    RefuseWhileCapturing("from_dlpack", "replays would not come behind who made it");
    stream.TakeOver(&memory);
    imported.reset(new Imported{managed, &Release<Tensor>, std::move(stream)});
    memory.release = &internal::ReleaseInTurn<&Imported::Release>;
    memory.context = imported.get();
  }
  BufferHandle buffer(NewImportedBuffer(memory));
  GiveToEnteredOwner(buffer.get(), layout.shape, layout.dtype);
  imported.release();  // the buffer's
  return NDArray::FromStrides(std::move(buffer), layout.first, layout.shape,
                              absl::Span<const int64_t>(layout.strides, layout.shape.rank()),
                              layout.dtype);
}

}  // namespace

DLManagedTensor* ToDLPack(const NDArray& array, const DLPackExport& how) {
  return Export<DLManagedTensor>(array, how);
}
DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array, const DLPackExport& how) {
  return Export<DLManagedTensorVersioned>(array, how);
}

NDArray FromDLPack(DLManagedTensor* tensor, std::optional<int64_t> stream) {
  return Import(tensor, stream);
}
NDArray FromDLPack(DLManagedTensorVersioned* tensor, std::optional<int64_t> stream) {
  return Import(tensor, stream);
}

int64_t DLPackStreamOf(const DeviceQueue& queue) {
  void* const native = queue.native();
  if (native == nullptr) {
    ThrowUnimplemented(absl::StrCat("DLPackStreamOf: queue ", queue.number(), " of ",
                                    DeviceName(queue.device()), " has no native one to name"));
  }
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(native));
}

}  // namespace tidepool
