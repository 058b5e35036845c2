#include "tidepool/nn/model_file.h"

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/atomic_file.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

// Sizes beyond this are a broken file, not a network to make room for.
constexpr int64_t kMaxSize = 1 << 20;

const std::string& Field(const std::map<std::string, std::string>& metadata,
                         const std::string& path, const std::string& name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    ThrowDataLoss(absl::StrCat(path, ": metadata has no \"", name,
                               "\", expected a model file written by tidepool"));
  }
  return found->second;
}

int64_t SizeOf(const std::string& path, const std::string& field, absl::string_view text) {
  int64_t size;
  if (!absl::SimpleAtoi(text, &size) || size < 1 || size > kMaxSize) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"", field, "\" holds \"", text,
                               "\", expected a number from 1 to ", kMaxSize));
  }
  return size;
}

std::string ShapeText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

}  // namespace

Model MakeModel(const std::string& name, const Shape& input, int64_t classes, uint64_t seed,
                WorkspaceMode mode) {
  return {name, classes, std::make_unique<Network>(input, LayersOf(name, classes), seed, mode)};
}

void SaveModel(const Model& model, const std::string& path) {
  std::vector<SafetensorView> tensors;
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    const absl::Span<const int64_t> dims = parameter.value.shape().span();
    tensors.push_back(
        {parameter.name, "F32", std::vector<int64_t>(dims.begin(), dims.end()),
         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(parameter.value.data<float>()),
                             static_cast<size_t>(parameter.value.NumElements()) * sizeof(float))});
  }
  WriteSafetensors(path,
                   {{"format", "tidepool"},
                    {"model", model.name},
                    {"classes", absl::StrCat(model.classes)},
                    {"input", absl::StrJoin(model.network->input_shape().span(), ",")},
                    {"architecture", model.network->Describe()}},
                   tensors);
}

void CheckModelPathIsWritable(const std::string& path) {
  AtomicFile probe(path);  // the temporary file goes with it
}

Model LoadModel(const std::string& path, WorkspaceMode mode) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  const auto& metadata = reader.metadata();
  if (const std::string& format = Field(metadata, path, "format"); format != "tidepool") {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"format\" is \"", format,
                               "\", expected \"tidepool\""));
  }
  std::vector<int64_t> dims;
  for (absl::string_view part : absl::StrSplit(Field(metadata, path, "input"), ',')) {
    dims.push_back(SizeOf(path, "input", part));
  }
  if (dims.size() > kMaxRank) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"input\" has rank ", dims.size(),
                               ", expected at most ", kMaxRank));
  }
  Model model;
  try {
    model = MakeModel(Field(metadata, path, "model"), Shape(absl::MakeConstSpan(dims)),
                      SizeOf(path, "classes", Field(metadata, path, "classes")), 0, mode);
  } catch (Error& error) {
    if (error.code() == absl::StatusCode::kInvalidArgument) error.AddContext(path);
    throw;
  }
  const std::string architecture = model.network->Describe();
  if (const std::string& found = Field(metadata, path, "architecture"); found != architecture) {
    ThrowDataLoss(absl::StrCat(path, ": architecture is \"", found, "\", expected \"",
                               architecture, "\" for model \"", model.name, "\""));
  }
  const auto& parameters = model.network->named_parameters();
  if (reader.tensors().size() != parameters.size()) {
    ThrowDataLoss(absl::StrCat(path, ": holds ", reader.tensors().size(), " tensors, expected ",
                               parameters.size(), " for \"", architecture, "\""));
  }
  for (const NamedParameter& parameter : parameters) {
    const SafetensorInfo* info = reader.FindOrNull(parameter.name);
    const absl::Span<const int64_t> shape = parameter.value.shape().span();
    if (info == nullptr) {
      ThrowDataLoss(absl::StrCat(path, ": tensor \"", parameter.name, "\" is missing, expected F32 ",
                                 ShapeText(shape)));
    }
    if (info->dtype != "F32" || absl::MakeConstSpan(info->shape) != shape) {
      ThrowDataLoss(absl::StrCat(path, ": tensor \"", parameter.name, "\" is ", info->dtype, " ",
                                 ShapeText(info->shape), ", expected F32 ", ShapeText(shape)));
    }
    NDArray value = parameter.value;
    const absl::Span<const std::byte> bytes = reader.data(*info);
    std::memcpy(value.mutable_data<float>(), bytes.data(), bytes.size());
  }
  return model;
}

}  // namespace tidepool::nn
