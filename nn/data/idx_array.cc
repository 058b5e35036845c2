#include "tidepool/nn/data/idx_array.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool {
namespace {

DType ArrayTypeOf(IdxType type) {
  switch (type) {
    case IdxType::kUnsignedByte:
      return DType::kUInt8;
    case IdxType::kSignedByte:
      return DType::kInt8;
    case IdxType::kShort:
      return DType::kInt16;
    case IdxType::kInt:
      return DType::kInt32;
    case IdxType::kFloat:
      return DType::kFloat32;
    case IdxType::kDouble:
      return DType::kFloat64;
  }
  ThrowInternal("an IDX type that was not checked");
}

}  // namespace

NDArray ReadIdxArray(const std::string& path, uint64_t max_bytes) {
  const IdxFile file = ReadAnyIdx(path, max_bytes, [&](absl::Span<const int64_t> dims) {
    if (dims.size() <= kMaxRank) return;
    ThrowUnimplemented(absl::StrCat(OneLine(path), ": byte 3: IDX rank: found ", dims.size(),
                                    ", expected at most ", kMaxRank, " for an array"));
  });
  // No bytes are no limit: sizes beside a 0 may be any.
  const Shape shape = [&] {
    try {
      return Shape(absl::MakeConstSpan(file.dims));
    } catch (const Error& error) {
      ThrowDataLoss(absl::StrCat(OneLine(path), ": byte 4: IDX dimensions: ", error.message()));
    }
  }();
  NDArray array(shape, ArrayTypeOf(file.type));
  if (file.data.empty()) return array;
  VisitDType(array.dtype(), [&]<typename T>(T) {
    // Numbers are big-endian in the file.
    auto* to = reinterpret_cast<std::byte*>(array.mutable_data<T>());
    const auto* from = reinterpret_cast<const std::byte*>(file.data.data());
    for (size_t at = 0; at < file.data.size(); at += sizeof(T)) {
      for (size_t i = 0; i < sizeof(T); ++i) to[at + i] = from[at + sizeof(T) - 1 - i];
    }
  });
  return array;
}

}  // namespace tidepool
