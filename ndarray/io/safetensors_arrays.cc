#include "tidepool/ndarray/io/safetensors_arrays.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/io/safetensors_file.h"

namespace tidepool {
namespace {

// The format's names are ours in capitals.
std::string NameOf(DType dtype) { return absl::AsciiStrToUpper(DTypeName(dtype)); }

DType TypeOf(const std::string& path, const SafetensorInfo& info) {
  for (int i = 0; i < kDTypes; ++i) {
    if (NameOf(static_cast<DType>(i)) == info.dtype) return static_cast<DType>(i);
  }
  ThrowUnimplemented(absl::StrCat(OneLine(path), ": tensor \"", OneLine(info.name), "\": found type ",
                                  OneLine(info.dtype),
                                  ", expected F32, F64, F16, BF16, I8, U8, I32, I64 or BOOL"));
}

constexpr uint64_t kPiece = uint64_t{4} << 20;  // on the way to a device

}  // namespace

void ReadSafetensor(const SafetensorsReader& reader, const SafetensorInfo& info, NDArray& array) {
  const uint64_t bytes = info.bytes();
  if (bytes == 0) return;
  const bool is_bool = array.dtype() == DType::kBool;
  const auto read = [&](uint64_t begin, absl::Span<std::byte> to) {
    reader.Read(info, begin, to);
    // A bool of another value than 0 and 1 is not one.
    if (is_bool) std::transform(to.begin(), to.end(), to.begin(), [](std::byte b) { return std::byte(b != std::byte{0}); });
  };
  if (array.device() == Host()) {
    read(0, absl::MakeSpan(array.raw_data(), bytes));
  } else {
    const NDArray piece({static_cast<int64_t>(std::min(bytes, kPiece))}, DType::kUInt8, Place::Heap());
    for (uint64_t begin = 0; begin < bytes; begin += kPiece) {
      const absl::Span<std::byte> some = absl::MakeSpan(piece.raw_data(), std::min(bytes - begin, kPiece));
      read(begin, some);
      CopyBytes(array.device(), array.raw_data() + begin, Host(), some.data(), some.size());
    }
  }
  array.MarkWritten();
}

std::map<std::string, NDArray> ReadSafetensorsArrays(const std::string& path, Place place) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  for (const SafetensorInfo& info : reader.tensors()) TypeOf(path, info);  // before any is made
  std::map<std::string, NDArray> arrays;
  for (const SafetensorInfo& info : reader.tensors()) {
    NDArray array(Shape(absl::Span<const int64_t>(info.shape)), TypeOf(path, info), place);
    ReadSafetensor(reader, info, array);
    arrays.emplace(info.name, std::move(array));
  }
  return arrays;
}

void WriteSafetensorsArrays(const std::string& path, const std::map<std::string, NDArray>& arrays,
                            const std::map<std::string, std::string>& metadata) {
  std::vector<NDArray> dense;
  std::vector<SafetensorView> views;
  for (const auto& [name, array] : arrays) {
    array.CheckAlive("write_safetensors", name.c_str());
    dense.push_back(array.is_dense() && array.device() == Host()
                        ? array
                        : array.CopyTo(Place::Heap()));
    const NDArray& kept = dense.back();
    const size_t bytes = static_cast<size_t>(kept.NumElements()) * DTypeBytes(kept.dtype());
    views.push_back({name, NameOf(kept.dtype()),
                     std::vector<int64_t>(kept.shape().dims(), kept.shape().dims() + kept.rank()),
                     absl::MakeConstSpan(kept.raw_data(), bytes)});
  }
  WriteSafetensors(path, metadata, views);
}

}  // namespace tidepool
