#include "tidepool/ndarray/io/dlpack.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
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
#include "tidepool/ndarray/io/dlpack_layout.h"
#include "tidepool/ndarray/io/dlpack_streams.h"
#include "tidepool/ndarray/io/release_in_turn.h"

namespace tidepool {
namespace {

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

  std::optional<internal::DLPackStream>
      stream;  // the last to go: its queue's number stands in the buffer
  NDArray array;
  HeldBytes bytes;  // also when the array is closed
  const bool is_read_only;
  Tensor tensor = {};
  int64_t strides[kMaxRank];
};

// By this one a tensor is known when it comes back.
template <typename Tensor>
void DeleteExported(Tensor* self) {
  delete static_cast<Exported<Tensor>*>(self->manager_ctx);
}

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
    ThrowUnimplemented(
        absl::StrCat("from_dlpack: found a tensor on device type ", number, ", expected one of ",
                     DescribeDLPackDevices(),
                     " or 3 (page-locked host memory of CUDA); DLPackDeviceRegistrar adds one"));
  }
  if (entry->type == DeviceType::kHost) {
    // There is one; page-locked memory may say of which device's driver it is.
    const int most = is_page_locked ? kMaxDevicesPerType - 1 : 0;
    if (found.device_id < 0 || found.device_id > most) {
      ThrowInvalidArgument(
          absl::StrCat("from_dlpack: found a tensor on number ", found.device_id, " of ",
                       most == 0 ? "the host" : "CUDA's page-locked host memory", ", expected 0",
                       most == 0 ? "" : absl::StrCat(" to ", most)));
    }
    return *entry;
  }
  if (found.device_id < 0 || found.device_id >= kMaxDevicesPerType) {
    ThrowInvalidArgument(absl::StrCat("from_dlpack: found a tensor on number ", found.device_id,
                                      " of ", DeviceTypeName(entry->type), ", expected 0 to ",
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
      CheckMayOwn(
          owner, buffer->bytes,
          absl::StrCat("from_dlpack: an array of shape ", shape.ToString(), " ", DTypeName(dtype)));
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
  // What has no elements needs no order.
  internal::DLPackStream stream("to_dlpack", *entry, device,
                                shared.buffer() ? how.stream : internal::kNoOrder);
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
  tensor.dtype = internal::DLPackTypeOf(held.dtype());
  tensor.shape = const_cast<int64_t*>(held.shape().dims());
  tensor.strides = exported->strides;
  tensor.byte_offset = 0;
  SetVersion(&exported->tensor, read_only, how.copy);
  exported->tensor.manager_ctx = exported.get();
  exported->tensor.deleter = &DeleteExported<Tensor>;
  return &exported.release()->tensor;
}

// Of one of ours that has come back, a view of its array's buffer: the queues know who uses it, and nothing is kept for it.
// Undefined where that would be another owner's, is dead or may be written to; and of elements that lie outside.
template <typename Tensor>
NDArray ViewOfOwn(const Tensor& managed, const internal::DLPackLayout& layout, Device device,
                  const internal::DLPackStream& stream) {
  if (managed.deleter != &DeleteExported<Tensor>) return NDArray();
  const BufferHandle& buffer =
      static_cast<const Exported<Tensor>*>(managed.manager_ctx)->array.buffer();
  const uint64_t owner = current_owner.ref == kHandlesOwn ? 0 : current_owner.ref;
  if (!buffer || buffer->device != device || !buffer->IsAlive() ||
      buffer->read_only != IsReadOnly(managed) || CurrentNodeOf(*buffer.get()) != owner) {
    return NDArray();
  }
  // As numbers: the consumer may have changed them.
  const uintptr_t begin =
      reinterpret_cast<uintptr_t>(layout.lowest) - reinterpret_cast<uintptr_t>(buffer->data);
  const size_t width = DTypeBytes(layout.dtype);
  if (begin > buffer->bytes || layout.bytes > buffer->bytes - begin || begin % width != 0)
    return NDArray();
  stream.TakeBack(buffer.get(), /*writes=*/true);
  return NDArray::FromStrides(
      buffer, static_cast<int64_t>(begin / width) + layout.first, layout.shape,
      absl::Span<const int64_t>(layout.strides, layout.shape.rank()), layout.dtype);
}

template <typename Tensor>
NDArray Import(Tensor* managed, std::optional<int64_t> number) {
  if (managed == nullptr) ThrowInvalidArgument("from_dlpack: found no tensor");
  CheckVersion(*managed);
  const DLTensor& tensor = managed->dl_tensor;
  Device device;
  const DLPackDevice& entry = EntryOf(tensor.device, &device);
  const internal::DLPackLayout layout = internal::LayoutOf(tensor);
  if (layout.shape.NumElements() == 0) {
    Release<Tensor>(managed);
    return NDArray(layout.shape, layout.dtype, Place::On(device));
  }
  if (layout.dtype == DType::kBool && device == Host()) internal::CheckBools(layout);
  internal::DLPackStream stream("from_dlpack", entry, device, number);
  if (device != Host())
    RefuseWhileCapturing("from_dlpack", "replays would not come behind who made it");
  if (NDArray view = ViewOfOwn(*managed, layout, device, stream); view.is_defined()) {
    Release<Tensor>(managed);
    return view;
  }
  ImportedMemory memory{.data = layout.lowest,
                        .bytes = layout.bytes,
                        .release = &internal::ReleaseInTurn<&Release<Tensor>>,
                        .context = managed,
                        .read_only = IsReadOnly(*managed)};
  std::unique_ptr<Imported> imported;
  if (device != Host()) {
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
