#include "tidepool/ndarray/io/safetensors_arrays.h"

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

}  // namespace

std::map<std::string, NDArray> ReadSafetensorsArrays(const std::string& path, Place place) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  for (const SafetensorInfo& info : reader.tensors()) TypeOf(path, info);  // before any is made
  std::map<std::string, NDArray> arrays;
  for (const SafetensorInfo& info : reader.tensors()) {
    NDArray array(Shape(absl::Span<const int64_t>(info.shape)), TypeOf(path, info), place);
    const absl::Span<const std::byte> data = reader.data(info);
    if (!data.empty()) {
      CopyBytes(array.device(), array.raw_data(), Host(), data.data(), data.size());
      array.MarkWritten();
    }
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
