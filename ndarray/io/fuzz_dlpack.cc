// Tensors of other libraries: every field of a DLTensor from the input, and memory behind it that
// is watched.
#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

constexpr int kMostDims = 10;
constexpr size_t kMemoryBytes = 512;

// An input as it lies in the bytes; what is missing is 0.
struct Fields {
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int32_t device_type, device_id;
  uint64_t byte_offset;
  uint64_t flags;
  uint32_t major;
  uint8_t has_data, has_shape, has_strides, has_deleter;
  uint64_t address;  // where has_data is more than 1: of no memory, never looked at
  int64_t shape[kMostDims];
  int64_t strides[kMostDims];
};

std::string Bytes(const Fields& fields) {
  return std::string(reinterpret_cast<const char*>(&fields), sizeof(fields));
}

Fields FieldsOf(const std::string& bytes) {
  Fields fields = {};
  std::memcpy(&fields, bytes.data(), std::min(bytes.size(), sizeof(fields)));
  return fields;
}

std::vector<std::string> DLTensors() {
  Fields dense = {.rank = 2,
                  .code = kDLFloat,
                  .bits = 32,
                  .lanes = 1,
                  .device_type = kDLCPU,
                  .major = 1,
                  .has_data = 1,
                  .has_shape = 1,
                  .has_strides = 1,
                  .has_deleter = 1,
                  .shape = {2, 3},
                  .strides = {3, 1}};
  Fields reversed = dense;
  reversed.rank = 1, reversed.shape[0] = 5, reversed.strides[0] = -2, reversed.byte_offset = 32;
  Fields bools = dense;
  bools.code = 6, bools.bits = 8, bools.has_strides = 0;
  Fields once = bools;
  once.has_strides = 1, once.shape[0] = 1, once.strides[0] = INT64_MAX;
  Fields wraps = dense;
  wraps.has_data = 2, wraps.address = ~uint64_t{0} - 3, wraps.byte_offset = 4;
  Fields far = dense;
  far.shape[0] = int64_t{1} << 58, far.strides[0] = INT64_MIN;
  Fields nowhere = dense;
  nowhere.device_type = 18874374;
  Fields no_bool = bools;
  no_bool.has_shape = 4;
  Fields farther = far;
  farther.shape[0] = INT64_MAX, farther.bits = 248;
  return {Bytes(farther), Bytes(no_bool), Bytes(nowhere), Bytes(dense), Bytes(reversed),
          Bytes(bools),   Bytes(once),    Bytes(wraps),   Bytes(far)};
}

void MutateTensor(ByteMutator& mutator, std::string& bytes) {
  Fields fields = FieldsOf(bytes);
  const auto signed_number = [&](int64_t near) {
    const uint64_t number = mutator.Number(static_cast<uint64_t>(near));
    return static_cast<int64_t>(mutator.Below(3) == 0 ? ~number + 1 : number);
  };
  const size_t axis = mutator.Below(kMostDims);
  switch (mutator.Below(9)) {
    case 0:
      fields.rank = static_cast<int32_t>(mutator.Below(mutator.Below(8) == 0 ? 64 : 5)) -
                    (mutator.Below(16) == 0 ? 9 : 0);
      break;
    case 1: {
      constexpr uint8_t kCodes[] = {kDLInt, kDLUInt, kDLFloat, kDLBfloat, 6, 3, 77};
      fields.code = kCodes[mutator.Below(7)];
      fields.bits = static_cast<uint8_t>(8 << mutator.Below(5));
      break;
    }
    case 2:
      fields.byte_offset = mutator.Number(fields.byte_offset);
      break;
    case 3:
      fields.has_data = static_cast<uint8_t>(mutator.Below(3));
      fields.address = mutator.Number(~uint64_t{0} - 64);
      break;
    case 4:
      fields.has_strides = static_cast<uint8_t>(mutator.Below(2));
      fields.has_shape = static_cast<uint8_t>(mutator.Below(16));
      fields.has_deleter = static_cast<uint8_t>(mutator.Below(2));
      fields.flags = mutator.Below(4);
      break;
    case 5:
      fields.device_type =
          static_cast<int32_t>(mutator.Below(4) == 0 ? mutator.Number(1) : mutator.Below(20)),
      fields.device_id = static_cast<int32_t>(mutator.Number(0));
      break;
    case 6:
      fields.shape[axis % 3] = signed_number(fields.shape[axis % 3]);
      break;
    case 7:
      fields.strides[axis % 3] = signed_number(fields.strides[axis % 3]);
      break;
    default:
      fields.shape[axis] = static_cast<int64_t>(mutator.Below(4)),
      fields.strides[axis] = signed_number(4);
  }
  bytes = Bytes(fields);
}

// Lowest and one behind the highest byte of the elements, from the data; false: it cannot be told,
// or has no elements.
bool RangeOf(const DLTensor& tensor, __int128* begin, __int128* end) {
  const __int128 width = tensor.dtype.bits / 8;
  *begin = *end = static_cast<__int128>(tensor.byte_offset);
  if (tensor.ndim < 0 || tensor.ndim > 8 || width == 0 ||
      (tensor.ndim > 0 && tensor.shape == nullptr))
    return false;
  constexpr __int128 kFar = __int128{1} << 100;  // what can be added up
  __int128 dense = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    const __int128 size = tensor.shape[i];
    if (size <= 0 || dense > (__int128{1} << 60)) return false;
    const __int128 elements =
        (size - 1) * (tensor.strides != nullptr ? __int128{tensor.strides[i]} : dense);
    if (elements > kFar || elements < -kFar) return false;
    (elements < 0 ? *begin : *end) += elements * width;
    dense *= size;
  }
  *end += width;
  return true;
}

template <typename Tensor>
struct Foreign {
  explicit Foreign(const Fields& from) : fields(from) {
    // With a shape of "2" there is a byte among them that is no bool.
    for (size_t i = 0; i < kMemoryBytes; ++i) memory[i] = static_cast<uint8_t>(i % 3 != 0);
    if (fields.has_shape > 1) memory[fields.has_shape] = fields.has_shape;
    DLTensor& tensor = managed.dl_tensor;
    tensor.data = fields.has_data == 0   ? nullptr
                  : fields.has_data == 1 ? memory
                                         : reinterpret_cast<void*>(fields.address);
    // Another library may write any number there.
    std::memcpy(&tensor.device.device_type, &fields.device_type, sizeof(fields.device_type));
    tensor.device.device_id = fields.device_id;
    tensor.ndim = fields.rank;
    tensor.dtype = {fields.code, fields.bits, fields.lanes};
    tensor.shape = fields.has_shape != 0 ? fields.shape : nullptr;
    tensor.strides = fields.has_strides != 0 ? fields.strides : nullptr;
    tensor.byte_offset = fields.byte_offset;
    managed.manager_ctx = this;
    if (fields.has_deleter != 0) {
      managed.deleter = [](Tensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    }
  }

  Fields fields;
  Tensor managed = {};
  int deleted = 0;
  alignas(64) uint8_t memory[kMemoryBytes];
};

template <typename Tensor>
void Take(Foreign<Tensor>& foreign) {
  DLTensor& tensor = foreign.managed.dl_tensor;
  __int128 begin = 0, end = 0;
  const bool known = RangeOf(tensor, &begin, &end);
  const bool inside =
      known && tensor.data == foreign.memory && begin >= 0 && end <= __int128{kMemoryBytes};
  // Bools of the host are read when they come: a tensor may lie about its memory, which nobody can
  // know.
  if (tensor.dtype.code == 6 && known && !inside) tensor.dtype.code = kDLUInt;
  bool taken = false;
  try {
    const NDArray array = FromDLPack(&foreign.managed);
    taken = true;
    if (known) {
      // All of the elements and nothing else.
      const auto data = __int128{reinterpret_cast<uintptr_t>(tensor.data)};
      EXPECT_TRUE(array.buffer()->bytes == static_cast<unsigned __int128>(end - begin));
      EXPECT_TRUE(__int128{reinterpret_cast<uintptr_t>(array.buffer()->data)} == data + begin);
      EXPECT_TRUE(data + begin > 0 && data + end <= __int128{UINTPTR_MAX});
    }
    // With strides of 0 few bytes may be very many elements, which no copy of them is asked for.
    if (array.NumElements() > 0 && array.NumElements() < 5000 && inside) {
      const NDArray copy = array.CopyTo(Place::Heap());
      const auto data = reinterpret_cast<uint8_t*>(copy.raw_data());
      const size_t bytes = static_cast<size_t>(copy.NumElements()) * DTypeBytes(copy.dtype());
      if (copy.dtype() == DType::kBool || foreign.fields.has_shape <= 1) {
        for (size_t i = 0; i < bytes; ++i) ASSERT_LE(data[i], 1);
      }
    }
    // The usual ways on from here look at sizes and strides alone.
    EXPECT_EQ(array.Transpose().rank(), array.rank());
    for (int axis = 0; axis < array.rank(); ++axis) {
      const int64_t size = array.shape()[axis];
      if (size == 0) continue;
      EXPECT_EQ(array.Slice(axis, 0, 1).shape()[axis], 1);
      EXPECT_EQ(array.Slice(axis, size - 1, -1, -1).shape()[axis], size);
    }
  } catch (const Error& error) {
    EXPECT_FALSE(taken) << "a view of what was taken is refused: " << error.message();
    EXPECT_EQ(foreign.deleted, 0) << "refused, and yet taken over";
    throw;
  }
  EXPECT_EQ(foreign.deleted, foreign.fields.has_deleter != 0 ? 1 : 0);
}

void TakeTensor(const std::string& bytes) {
  const Fields fields = FieldsOf(bytes);
  Foreign<DLManagedTensor> plain(fields);
  bool taken = true;
  try {
    Take(plain);
  } catch (const Error&) {
    taken = false;
  }
  Foreign<DLManagedTensorVersioned> versioned(fields);
  versioned.managed.version = {fields.major, 0};
  versioned.managed.flags = fields.flags;
  Take(versioned);
  EXPECT_TRUE(taken);
}

TIDEPOOL_FUZZ_TARGET(
    DLPack, {.corpus = &DLTensors, .mutate = &MutateTensor, .run = &TakeTensor, .cases = 20000});

}  // namespace
}  // namespace tidepool
