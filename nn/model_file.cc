#include "tidepool/nn/model_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network/graph_body.h"
#include "tidepool/nn/network_json.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {
namespace {

// Sizes beyond this are a broken file, not a network to make room for.
constexpr int64_t kMaxClasses = 1 << 20;
constexpr size_t kMaxNameBytes = 200;
constexpr char kExpectedName[] = "at most 200 bytes without control characters";
// So many models that could not be saved where they should may lie beside each other.
constexpr int kMaxBeside = 1000;
constexpr absl::string_view kNotePrefix = "note.";

const std::string& Field(const std::map<std::string, std::string>& metadata,
                         const std::string& path, const char* name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    ThrowDataLoss(absl::StrCat(path, ": metadata has no \"", name,
                               "\", expected a model file written by tidepool"));
  }
  return found->second;
}

int64_t ClassesOf(const std::string& path, absl::string_view text) {
  int64_t classes;
  if (!absl::SimpleAtoi(text, &classes) || classes < 1 || classes > kMaxClasses) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"classes\" holds ", QuotedFromFile(text),
                               ", expected a number from 1 to ", kMaxClasses));
  }
  return classes;
}

// Names stand in messages, and come back as they were.
bool IsName(const std::string& name) {
  return name.size() <= kMaxNameBytes &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// What the network computes in. Files of before this field say it by their tensors.
DType TypeOf(const std::string& path, const SafetensorsReader& reader) {
  const auto found = reader.metadata().find("type");
  if (found == reader.metadata().end()) {
    return !reader.tensors().empty() && reader.tensors()[0].dtype == "F64" ? DType::kFloat64
                                                                           : DType::kFloat32;
  }
  for (const DType type : {DType::kFloat32, DType::kFloat64}) {
    if (found->second == DTypeName(type)) return type;
  }
  ThrowDataLoss(absl::StrCat(path, ": metadata \"type\" holds ", QuotedFromFile(found->second),
                             ", expected f32 or f64"));
}

// Nothing is allocated by what the configuration of a file claims.
std::unique_ptr<const GraphBody> BodyOf(const std::string& path, const std::string& json) {
  try {
    return std::make_unique<const GraphBody>(NetworkFromJson(json));
  } catch (const Error& error) {
    ThrowDataLoss(
        absl::StrCat(path, ": metadata \"network\" holds ", QuotedFromFile(json),
                     ", expected a network that can be made: ", OneLine(error.message())));
  }
}

[[noreturn]] void CannotBeSaved(const Model& model, const std::string& why) {
  ThrowInvalidArgument(
      absl::StrCat("model ", QuotedFromFile(model.name), " could not be loaded again: ", why));
}

}  // namespace

Model MakeModel(const std::string& name, const Shape& input, int64_t classes, uint64_t seed,
                WorkspaceMode mode, Device device) {
  NetworkConfig config;
  if (name == "residual") {
    config = ResidualConfig(input, classes, {16, 32, 64});
  } else if (name == "lenet" || name == "mlp") {
    config = NetworkConfig::Sequential(input, LayersOf(name, classes));
  } else {
    ThrowInvalidArgument(absl::StrCat("model is \"", name, "\", expected lenet, mlp or residual"));
  }
  NetworkOptions options;
  options.seed = seed;
  options.mode = mode;
  options.device = device;
  options.name = name;
  return {name, classes, std::make_unique<Network>(std::move(config), options)};
}

namespace {

// As the file of the model has it.
std::map<std::string, std::string> FieldsOf(const Model& model) {
  std::map<std::string, std::string> metadata = {
      {"format", "tidepool"},
      {"model", model.name},
      {"classes", absl::StrCat(model.classes)},
      {"network", NetworkToJson(*model.network->config(), -1)},
      {"type", DTypeName(model.network->dtype())},
      {"architecture", model.network->Describe()}};
  for (const auto& [name, note] : model.notes)
    metadata.emplace(absl::StrCat(kNotePrefix, name), note);
  return metadata;
}

// What the format refuses: texts that are not UTF-8, more of them than a header holds.
void CheckHeader(const Model& model) {
  SafetensorsHeader header;
  header.metadata = FieldsOf(model);
  int64_t elements = 0;  // of shapes: memory may be a host's
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    elements += parameter.value.shape().NumElements();
  }
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    const absl::Span<const int64_t> dims = parameter.value.shape().span();
    SafetensorInfo info;
    info.name = parameter.name;
    info.dtype = DTypeName(model.network->dtype());
    info.shape.assign(dims.begin(), dims.end());
    // Offsets are of the most digits that they may have.
    info.begin = info.end = static_cast<uint64_t>(elements) * DTypeBytes(model.network->dtype());
    header.tensors.push_back(std::move(info));
  }
  try {
    SerializeSafetensorsHeader(header, "its file");
  } catch (const Error& error) {
    CannotBeSaved(model, error.message());
  }
}

}  // namespace

namespace {

// What of a network is not as it would be when it was made again, for messages; empty: nothing.
std::string WhatDiffers(const Network& network, const GraphBody& again) {
  if (again.output_shapes() != network.output_shapes()) return "its outputs have other shapes";
  std::map<std::string, Shape> shapes;
  for (const NamedSpec& spec : again.parameters()) shapes.emplace(spec.name, spec.spec.shape);
  for (const NamedParameter& parameter : network.named_parameters()) {
    const auto found = shapes.find(parameter.name);
    if (found == shapes.end()) return absl::StrCat("\"", parameter.name, "\" would not be there");
    if (found->second != parameter.value.shape()) {
      return absl::StrCat("\"", parameter.name, "\" of shape ", parameter.value.shape().ToString(),
                          " would be of shape ", found->second.ToString());
    }
    shapes.erase(found);
  }
  return shapes.empty() ? ""
                        : absl::StrCat("\"", shapes.begin()->first, "\" would be there as well");
}

// The network as a file makes it again; throws where it would be another one or could not be.
std::unique_ptr<const GraphBody> MadeAgain(const Model& model) {
  if (model.network == nullptr) ThrowInvalidArgument("the model has no network");
  const NetworkConfig* const config = model.network->config();
  if (config == nullptr) {
    CannotBeSaved(
        model, "its network is a program (Block), expected a configuration, or SaveParameters()");
  }
  for (const NodeConfig& node : config->nodes) {
    if (NewLayer(node.layer->Kind()) != nullptr) continue;
    CannotBeSaved(model, absl::StrCat("layer \"", node.name, "\" is of kind \"", node.layer->Kind(),
                                      "\", expected one that RegisterLayer() has made known"));
  }
  if (model.classes < 1 || model.classes > kMaxClasses) {
    CannotBeSaved(model, absl::StrCat(model.classes, " classes, expected 1 to ", kMaxClasses));
  }
  if (!IsName(model.name))
    CannotBeSaved(model, absl::StrCat("its name is ", QuotedFromFile(model.name), ", expected ",
                                      kExpectedName));
  std::unique_ptr<const GraphBody> again;
  bool is_described = false;
  try {
    const std::string json = NetworkToJson(*config, -1);
    again = std::make_unique<const GraphBody>(NetworkFromJson(json));
    is_described = again->Describe() == model.network->Describe() &&
                   NetworkToJson(*again->config(), -1) == json;
  } catch (const Error& error) {
    CannotBeSaved(model, error.message());
  }
  if (!is_described) CannotBeSaved(model, "its layers' fields do not describe them");
  if (const std::string differs = WhatDiffers(*model.network, *again); !differs.empty()) {
    CannotBeSaved(model, absl::StrCat("its layers' fields do not say all of them: ", differs));
  }
  CheckHeader(model);
  return again;
}

// "its layers make 1.6e+08 numbers of one example, expected at most ..."; empty: so much may be loaded.
std::string BeyondLimits(const LayerCost& cost, int64_t max_example_elements,
                         int64_t max_example_operations) {
  if (cost.elements > static_cast<double>(max_example_elements)) {
    return absl::StrCat("its layers make ", cost.elements,
                        " numbers of one example, expected at most ", max_example_elements,
                        " (LoadModel's max_example_elements)");
  }
  if (cost.operations > static_cast<double>(max_example_operations)) {
    return absl::StrCat("its layers take ", cost.operations,
                        " operations for one example, expected at most ", max_example_operations,
                        " (LoadModel's max_example_operations, --max_operations of programs)");
  }
  return "";
}

}  // namespace

void CheckModelCanBeSaved(const Model& model, int64_t max_example_elements,
                          int64_t max_example_operations) {
  const std::string beyond = BeyondLimits(MadeAgain(model)->cost_of_example(), max_example_elements,
                                          max_example_operations);
  if (!beyond.empty()) CannotBeSaved(model, beyond);
}

namespace {

// Throws for a model that cannot be saved.
std::map<std::string, std::string> MetadataOf(const Model& model, const std::string& path) {
  try {
    MadeAgain(model);
  } catch (Error& error) {
    error.AddContext(absl::StrCat("SaveModel: ", path));
    throw;
  }
  return FieldsOf(model);
}

}  // namespace

void SaveModel(const Model& model, const std::string& path) {
  const auto metadata = MetadataOf(model, path);  // first: it refuses a model without a network
  SaveParameters(*model.network, path, metadata);
}

void SaveModelInParts(const Model& model, const std::string& path, WriteTensor write) {
  const auto metadata = MetadataOf(model, path);
  SaveParametersInParts(*model.network, path, metadata, {}, write);
}

void CheckModelPathIsWritable(const std::string& path) {
  AtomicFile probe(path);  // the temporary file goes with it
}

DiskReservation ReserveModelFile(const Model& model, const std::string& path) {
  std::map<std::string, std::string> metadata = MetadataOf(model, path);
  std::vector<SafetensorInfo> tensors;
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    const absl::Span<const int64_t> dims = parameter.value.shape().span();
    tensors.push_back({parameter.name, absl::AsciiStrToUpper(DTypeName(parameter.value.dtype())),
                       std::vector<int64_t>(dims.begin(), dims.end()), 0, 0});
  }
  const std::string name = OneLine(path);
  const SafetensorsHeader header = LayOutSafetensors(std::move(metadata), std::move(tensors), name);
  return DiskReservation(path, SerializeSafetensorsHeader(header, name).size() + header.data_bytes);
}

std::string SaveModelBeside(const Model& model, const std::string& path,
                            const std::string& suffix) {
  const std::filesystem::path beside(path);
  std::error_code no_such_folder;  // as $TMPDIR says
  std::filesystem::path temporary = std::filesystem::temp_directory_path(no_such_folder);
  if (no_such_folder) temporary = "/tmp";
  const std::filesystem::path folders[] = {beside.parent_path(), temporary};
  // A name has at most 255 bytes.
  const std::string base = beside.filename().string().substr(0, 200);
  std::optional<Error> first;
  for (const std::filesystem::path& folder : folders) {
    std::filesystem::path file;
    std::error_code unknown;
    for (int number = 1; number < kMaxBeside; ++number) {
      file = folder / absl::StrCat(base, suffix, number > 1 ? absl::StrCat("-", number) : "");
      if (std::filesystem::symlink_status(file, unknown).type() ==
          std::filesystem::file_type::not_found) {
        break;
      }
    }
    try {
      SaveModel(model, file.string());
      return file.string();
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw *first;
}

void SaveModelAnywhere(const Model& model, const std::string& path) {
  try {
    SaveModel(model, path);
  } catch (const Error& error) {
    std::string beside;
    try {
      beside = OneLine(SaveModelBeside(model, path, ".unsaved"));
    } catch (const Error&) {
      throw error;
    }
    throw Error(error.code(), absl::StrCat(error.message(), "; the model is in ", beside));
  }
}

Model LoadModel(const std::string& file, WorkspaceMode mode, Device device,
                int64_t max_example_elements, int64_t max_example_operations) {
  const std::string path = OneLine(file);
  const SafetensorsReader reader = SafetensorsReader::Open(file);
  const auto& metadata = reader.metadata();
  if (const std::string& format = Field(metadata, path, "format"); format != "tidepool") {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"format\" is ", QuotedFromFile(format),
                               ", expected \"tidepool\""));
  }
  const std::string& name = Field(metadata, path, "model");
  if (!IsName(name)) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"model\" holds ", QuotedFromFile(name),
                               ", expected ", kExpectedName));
  }
  const int64_t classes = ClassesOf(path, Field(metadata, path, "classes"));
  const std::unique_ptr<const GraphBody> body = BodyOf(path, Field(metadata, path, "network"));
  const std::string& found = Field(metadata, path, "architecture");
  if (const std::string architecture = body->Describe(); found != architecture) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"architecture\" is ", QuotedFromFile(found),
                               ", expected ", QuotedFromFile(architecture),
                               " as \"network\" has it"));
  }
  const Shape& outputs = body->output_shapes()[0];
  if (outputs.rank() == 0 || outputs[outputs.rank() - 1] != classes) {
    ThrowDataLoss(absl::StrCat(path, ": metadata \"classes\" is ", classes,
                               ", expected that of the network's outputs ", outputs.ToString()));
  }
  NetworkOptions options;
  options.dtype = TypeOf(path, reader);
  options.mode = mode;
  options.device = device;
  options.name = name;
  options.draw_parameters = false;  // they are read
  CheckParameters(reader, path, body->parameters(), options.dtype);
  const std::string beyond =
      BeyondLimits(body->cost_of_example(), max_example_elements, max_example_operations);
  if (!beyond.empty()) ThrowDataLoss(absl::StrCat(path, ": metadata \"network\": ", beyond));
  Model model(name, classes, std::make_unique<Network>(*body->config(), options));
  ReadParameters(reader, *model.network);
  for (const auto& [key, note] : metadata) {
    if (absl::StartsWith(key, kNotePrefix))
      model.notes.emplace(key.substr(kNotePrefix.size()), note);
  }
  return model;
}

}  // namespace tidepool::nn
