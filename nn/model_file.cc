#include "tidepool/nn/model_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

// Sizes beyond this are a broken file, not a network to make room for.
constexpr int64_t kMaxSize = 1 << 20;
// Bytes of a file's text that a message shows.
constexpr size_t kMaxShown = 200;

// Text of a file in a message: one line, of a length one can read.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", OneLine(std::string(text.substr(0, kMaxShown))), "\"",
                      text.size() > kMaxShown ? "..." : "");
}

const std::string& Field(const std::map<std::string, std::string>& metadata,
                         const std::string& path, const char* name) {
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
    ThrowDataLoss(absl::StrCat(path, ": metadata \"", field, "\" holds ", Quoted(text),
                               ", expected a number from 1 to ", kMaxSize));
  }
  return size;
}

std::string ShapeText(absl::Span<const int64_t> dims) {
  return absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
}

struct ExpectedTensor {
  std::string name;
  Shape shape;
};

// What a network of these layers would hold. Sizes come from a file: nothing is allocated for them
// before its tensors are known to have them.
std::vector<ExpectedTensor> ExpectedTensors(const std::string& model, Shape shape,
                                            int64_t classes) {
  std::vector<ExpectedTensor> expected;
  int index = 0;
  for (const AnyLayer& layer : LayersOf(model, classes)) {
    const Shape output = layer->OutputShape(shape);
    for (const ParameterSpec& spec : layer->Parameters(shape)) {
      expected.push_back({absl::StrCat(index, ".", layer->Kind(), ".", spec.name), spec.shape});
    }
    shape = output;
    ++index;
  }
  return expected;
}

void CheckTensors(const SafetensorsReader& reader, const std::string& path,
                  const std::vector<ExpectedTensor>& expected) {
  for (const ExpectedTensor& tensor : expected) {
    const SafetensorInfo* info = reader.FindOrNull(tensor.name);
    const absl::Span<const int64_t> shape = tensor.shape.span();
    if (info == nullptr) {
      ThrowDataLoss(absl::StrCat(path, ": tensor \"", tensor.name, "\" is missing, expected F32 ",
                                 ShapeText(shape)));
    }
    if (info->dtype != "F32" || absl::MakeConstSpan(info->shape) != shape) {
      const absl::Span<const int64_t> found = info->shape;
      ThrowDataLoss(absl::StrCat(path, ": tensor \"", tensor.name, "\" is ", info->dtype, " ",
                                 ShapeText(found.subspan(0, kMaxRank)),
                                 found.size() > kMaxRank ? "..." : "", ", expected F32 ",
                                 ShapeText(shape)));
    }
  }
  // More tensors than those mean that one is not of this network.
  for (const SafetensorInfo& info : reader.tensors()) {
    const bool known = std::any_of(expected.begin(), expected.end(),
                                   [&](const auto& tensor) { return tensor.name == info.name; });
    if (!known) {
      ThrowDataLoss(absl::StrCat(path, ": tensor ", Quoted(info.name), " is unknown, expected ",
                                 expected.size(), " tensors from ", expected.front().name, " to ",
                                 expected.back().name));
    }
  }
}

}  // namespace

Model MakeModel(const std::string& name, const Shape& input, int64_t classes, uint64_t seed,
                WorkspaceMode mode, Device device) {
  return {name, classes,
          std::make_unique<Network>(input, LayersOf(name, classes), seed, mode, device, name)};
}

void SaveModel(const Model& model, const std::string& path) {
  if (model.network == nullptr) {
    ThrowInvalidArgument(absl::StrCat("SaveModel: ", path, ": the model has no network"));
  }
  std::vector<SafetensorView> tensors;
  std::vector<NDArray> values;  // on the host
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    values.push_back(parameter.value.To(Host()));
    const absl::Span<const int64_t> dims = parameter.value.shape().span();
    tensors.push_back(
        {parameter.name, "F32", std::vector<int64_t>(dims.begin(), dims.end()),
         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.back().data<float>()),
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

Model LoadModel(const std::string& file, WorkspaceMode mode, Device device) {
  const std::string path = OneLine(file);
  const SafetensorsReader reader = SafetensorsReader::Open(file);
  const auto& metadata = reader.metadata();
  if (const std::string& format = Field(metadata, path, "format"); format != "tidepool") {
    ThrowDataLoss(
        absl::StrCat(path, ": metadata \"format\" is ", Quoted(format), ", expected \"tidepool\""));
  }
  // Escaped, it is fit for messages, and the names of models stay what they are.
  const std::string name = OneLine(Field(metadata, path, "model")).substr(0, kMaxShown);
  const std::string& found = Field(metadata, path, "architecture");
  const int64_t classes = SizeOf(path, "classes", Field(metadata, path, "classes"));
  std::vector<int64_t> dims;
  for (absl::string_view part : absl::StrSplit(Field(metadata, path, "input"), ',')) {
    dims.push_back(SizeOf(path, "input", part));
    if (dims.size() > kMaxRank) {
      ThrowDataLoss(absl::StrCat(path, ": metadata \"input\" has rank ", kMaxRank + 1,
                                 " or more, expected at most ", kMaxRank));
    }
  }
  Shape input;
  std::vector<ExpectedTensor> expected;
  try {
    input = Shape(absl::MakeConstSpan(dims));
    expected = ExpectedTensors(name, input, classes);
  } catch (const Error& error) {
    ThrowDataLoss(absl::StrCat(path, ": metadata: found model \"", name, "\" of input ",
                               ShapeText(dims),
                               ", expected a network that can be made: ", error.message()));
  }
  CheckTensors(reader, path, expected);

  Model model = MakeModel(name, input, classes, 0, mode, device);
  if (const std::string architecture = model.network->Describe(); found != architecture) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"architecture\" is ", Quoted(found),
                               ", expected \"", architecture, "\" for model \"", name, "\""));
  }
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    NDArray value = parameter.value;
    ReadSafetensor(reader, reader.Find(parameter.name), value);
  }
  return model;
}

}  // namespace tidepool::nn
