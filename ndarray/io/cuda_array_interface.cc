#include "tidepool/ndarray/io/cuda_array_interface.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/io/dlpack_layout.h"

namespace tidepool {
namespace {

constexpr int64_t kNoOrder = -1;  // DLPack's

// As NumPy calls it on machines of little bytes first; empty: it has no name.
std::string TypeStringOf(DType dtype) {
  if (dtype == DType::kBFloat16) return "";
  const char kind = dtype == DType::kBool ? 'b'
                    : IsFloating(dtype)   ? 'f'
                    : IsUnsigned(dtype)   ? 'u'
                                          : 'i';
  const size_t bytes = DTypeBytes(dtype);
  return absl::StrCat(bytes == 1 ? "|" : "<", std::string(1, kind), bytes);
}

DType TypeNamed(const std::string& typestr) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string known = TypeStringOf(dtype);
    if (known.empty()) continue;
    // A byte has no order, and '=' is the machine's.
    const bool same = typestr.size() == known.size() && typestr.substr(1) == known.substr(1);
    if (same &&
        (typestr[0] == known[0] || typestr[0] == '=' || (known[0] == '|' && typestr[0] == '<')))
      return dtype;
  }
  ThrowUnimplemented(
      absl::StrCat("from_cuda_array_interface: found typestr '", typestr,
                   "', expected one of a type of ours, such as '<f4', '<i8' or '|b1'"));
}

void CheckIsCuda(const char* who, Device device) {
  if (device.type == DeviceType::kCuda) return;
  ThrowInvalidArgument(absl::StrCat(who, ": found an array of ", DeviceName(device),
                                    ", expected one of a CUDA device"));
}

std::string Tuple(const std::vector<int64_t>& numbers) {
  return absl::StrCat("(", absl::StrJoin(numbers, ", "), numbers.size() == 1 ? ",)" : ")");
}

// What comes in, as a tensor of DLPack's.
struct Imported {
  DLManagedTensorVersioned tensor = {};
  std::vector<int64_t> shape, strides;
  std::function<void()> release;

  static void Delete(DLManagedTensorVersioned* self) {
    const std::unique_ptr<Imported> imported(static_cast<Imported*>(self->manager_ctx));
    if (imported->release) imported->release();
  }
};

}  // namespace

std::string CudaArrayInterface::ToString() const {
  return absl::StrCat("{'shape': ", Tuple(shape), ", 'typestr': '", typestr, "', 'data': (", data,
                      ", ", read_only ? "True" : "False",
                      "), 'strides': ", strides.has_value() ? Tuple(*strides) : "None",
                      ", 'stream': ", stream.has_value() ? absl::StrCat(*stream) : "None",
                      ", 'version': ", version, "}");
}

CudaArrayExport ToCudaArrayInterface(const NDArray& array, const DLPackExport& how) {
  array.CheckAlive("to_cuda_array_interface", "X");
  CheckIsCuda("to_cuda_array_interface", array.device());
  CudaArrayExport given;
  CudaArrayInterface& fields = given.fields_;
  fields.typestr = TypeStringOf(array.dtype());
  if (fields.typestr.empty()) {
    ThrowUnimplemented(
        "Op [to_cuda_array_interface] X is bf16, which the interface has no name for; DLPack has "
        "one");
  }
  const absl::Span<const int64_t> dims(array.shape().dims(), array.rank());
  fields.shape.assign(dims.begin(), dims.end());
  if (array.NumElements() == 0) return given;
  DLPackExport ordered = how;
  if (!ordered.stream.has_value())
    ordered.stream = DLPackStreamOf(DeviceQueue::Here(array.device()));
  given.tensor_.reset(ToDLPackVersioned(array, ordered));
  const DLTensor& tensor = given.tensor_->dl_tensor;
  const auto width = static_cast<int64_t>(DTypeBytes(array.dtype()));
  std::vector<int64_t> strides;
  int64_t dense = width;
  bool is_dense = true;
  for (int axis = tensor.ndim - 1; axis >= 0; --axis) {
    const int64_t stride = tensor.strides[axis] * width;
    is_dense = is_dense && (tensor.shape[axis] == 1 || stride == dense);
    strides.insert(strides.begin(), stride);
    dense *= tensor.shape[axis];
  }
  if (!is_dense) fields.strides = std::move(strides);
  fields.data = reinterpret_cast<uint64_t>(tensor.data) + tensor.byte_offset;
  fields.read_only = (given.tensor_->flags & kDLPackReadOnly) != 0;
  if (*ordered.stream != kNoOrder) fields.stream = ordered.stream;
  return given;
}

NDArray FromCudaArrayInterface(const CudaArrayInterface& fields, Device device,
                               std::function<void()> release) {
  constexpr char kWho[] = "from_cuda_array_interface";
  CheckIsCuda(kWho, device);
  if (fields.version != 2 && fields.version != 3) {
    ThrowUnimplemented(absl::StrCat(kWho, ": found version ", fields.version, ", expected 2 or 3"));
  }
  const DType dtype = TypeNamed(fields.typestr);
  const auto width = static_cast<int64_t>(DTypeBytes(dtype));
  auto imported = std::make_unique<Imported>();
  imported->shape = fields.shape;
  imported->release = std::move(release);
  if (fields.strides.has_value()) {
    if (fields.strides->size() != fields.shape.size()) {
      ThrowInvalidArgument(absl::StrCat(kWho, ": found ", fields.strides->size(),
                                        " strides, expected ", fields.shape.size(),
                                        ", one for each axis"));
    }
    for (const int64_t stride : *fields.strides) {
      if (stride % width != 0) {
        ThrowInvalidArgument(absl::StrCat(kWho, ": found a stride of ", stride,
                                          " bytes, expected a multiple of ", width, ", which '",
                                          fields.typestr, "' has"));
      }
      imported->strides.push_back(stride / width);
    }
  }
  DLTensor& tensor = imported->tensor.dl_tensor;
  tensor.data = reinterpret_cast<void*>(fields.data);
  tensor.device = {kDLCUDA, device.index};
  tensor.ndim = static_cast<int32_t>(fields.shape.size());
  tensor.dtype = internal::DLPackTypeOf(dtype);
  tensor.shape = imported->shape.data();
  tensor.strides = fields.strides.has_value() ? imported->strides.data() : nullptr;
  imported->tensor.version = {kDLPackMajor, kDLPackMinor};
  imported->tensor.flags = fields.read_only ? kDLPackReadOnly : 0;
  imported->tensor.manager_ctx = imported.get();
  imported->tensor.deleter = &Imported::Delete;
  NDArray array = FromDLPack(&imported->tensor, fields.stream.value_or(kNoOrder));
  imported.release();  // the array's
  return array;
}

}  // namespace tidepool
