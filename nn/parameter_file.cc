#include "tidepool/nn/parameter_file.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"

namespace tidepool::nn {
namespace {

// Bytes of a file's text that a message shows.
constexpr size_t kMaxShown = 200;

// As safetensors calls it.
std::string FileType(DType dtype) { return absl::AsciiStrToUpper(DTypeName(dtype)); }

std::string ShapeText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace

std::string QuotedFromFile(absl::string_view text) {
  return absl::StrCat("\"", OneLine(std::string(text.substr(0, kMaxShown))), "\"",
                      text.size() > kMaxShown ? "..." : "");
}

void SaveParameters(const Network& network, const std::string& path,
                    const std::map<std::string, std::string>& metadata,
                    const std::vector<std::pair<std::string, NDArray>>& more) {
  network.arrays();  // throws where they are somebody else's, in words that say so
  std::vector<SafetensorView> tensors;
  std::vector<NDArray> values;  // on the host
  const auto add = [&](const std::string& name, const NDArray& array) {
    values.push_back(array.To(Host()));
    const NDArray& value = values.back();
    const absl::Span<const int64_t> dims = value.shape().span();
    tensors.push_back(
        {name, FileType(value.dtype()), std::vector<int64_t>(dims.begin(), dims.end()),
         absl::MakeConstSpan(value.raw_data(), static_cast<size_t>(value.NumElements()) *
                                                   DTypeBytes(value.dtype()))});
  };
  for (const NamedParameter& parameter : network.named_parameters()) {
    add(parameter.name, parameter.value);
  }
  for (const auto& [name, array] : more) add(name, array);
  WriteSafetensors(path, metadata, tensors);
}

void SaveParametersInParts(const Network& network, const std::string& path,
                           const std::map<std::string, std::string>& metadata,
                           const std::vector<std::pair<std::string, Shape>>& more,
                           WriteTensor write) {
  std::vector<SafetensorInfo> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    const absl::Span<const int64_t> dims = shape.span();
    tensors.push_back(
        {name, FileType(network.dtype()), std::vector<int64_t>(dims.begin(), dims.end()), 0, 0});
  };
  for (const NamedParameter& parameter : network.named_parameters()) {
    add(parameter.name, parameter.value.shape());
  }
  for (const auto& [name, shape] : more) add(name, shape);
  SafetensorsWriter writer(path, metadata, std::move(tensors));
  for (const SafetensorInfo& info : writer.tensors()) {
    write(info.name, [&](absl::Span<const std::byte> bytes) { writer.Append(bytes); });
  }
  writer.Commit();
}

void CheckParameters(const SafetensorsReader& reader, const std::string& path,
                     const std::vector<NamedSpec>& expected, DType dtype) {
  std::set<std::string> names;
  for (const NamedSpec& tensor : expected) {
    names.insert(tensor.name);
    const SafetensorInfo* info = reader.FindOrNull(tensor.name);
    const absl::Span<const int64_t> shape = tensor.spec.shape.span();
    const std::string wanted = absl::StrCat(FileType(dtype), " ", ShapeText(shape));
    if (info == nullptr) {
      ThrowDataLoss(absl::StrCat(path, ": tensor ", QuotedFromFile(tensor.name),
                                 " is missing, expected ", wanted));
    }
    if (info->dtype != FileType(dtype) || absl::MakeConstSpan(info->shape) != shape) {
      const absl::Span<const int64_t> found = info->shape;
      ThrowDataLoss(absl::StrCat(path, ": tensor ", QuotedFromFile(tensor.name), " is ",
                                 info->dtype, " ", ShapeText(found.subspan(0, kMaxRank)),
                                 found.size() > kMaxRank ? "..." : "", ", expected ", wanted));
    }
  }
  // More tensors than those mean that one is not of this network.
  for (const SafetensorInfo& info : reader.tensors()) {
    if (names.count(info.name) > 0) continue;
    ThrowDataLoss(absl::StrCat(path, ": tensor ", QuotedFromFile(info.name),
                               " is unknown, expected ", expected.size(), " tensors",
                               expected.empty()
                                   ? ""
                                   : absl::StrCat(" from ", QuotedFromFile(expected.front().name),
                                                  " to ", QuotedFromFile(expected.back().name))));
  }
}

void ReadParameters(const SafetensorsReader& reader, Network& network) {
  network.arrays();
  for (const NamedParameter& parameter : network.named_parameters()) {
    NDArray value = parameter.value;
    ReadSafetensor(reader, reader.Find(parameter.name), value);
  }
}

void LoadParameters(const std::string& path, Network& network) {
  std::vector<NamedSpec> expected;
  for (const NamedParameter& parameter : network.named_parameters()) {
    expected.push_back(
        {parameter.name, {.name = parameter.name, .shape = parameter.value.shape()}});
  }
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  CheckParameters(reader, OneLine(path), expected, network.dtype());
  ReadParameters(reader, network);
}

}  // namespace tidepool::nn
