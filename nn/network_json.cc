#include "tidepool/nn/network_json.h"

#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/network_json_text.h"

namespace tidepool::nn {
namespace {

using Json = nlohmann::json;  // for reading: finds fields by their names

constexpr int64_t kMostNumber = int64_t{1} << 31;
constexpr size_t kMostOfKind = 80;
constexpr int kMostWithin = 16;  // layers within layers: files are not trusted with the stack

// ---- Writing ----

class FieldWriter final : public FieldVisitor {
 public:
  explicit FieldWriter(JsonWriter& writer) : writer_(writer) {}
  void Field(const char* name, int64_t& value, Presence) override { Write(name, value); }
  void Field(const char* name, double& value, Presence) override { Write(name, value); }
  void Field(const char* name, bool& value, Presence) override { Write(name, value); }
  void Field(const char* name, std::string& value, Presence) override { Write(name, value); }
  void Field(const char* name, std::vector<int64_t>& value, Presence) override {
    Write(name, value);
  }
  void Field(const char* name, AnyLayer& value, Presence) override {
    if (!value) return;
    writer_.Key(name);
    writer_.BeginObject();
    Write("kind", value->Kind());
    const_cast<Layer&>(*value).VisitFields(*this);  // as in NetworkToJson
    writer_.EndObject();
  }

 private:
  void ChoiceIndex(const char* name, int& index, absl::Span<const char* const> names) override {
    Write(name, names[static_cast<size_t>(index)]);
  }
  template <typename T>
  void Write(const char* name, const T& value) {
    writer_.Key(name);
    writer_.Value(value);
  }
  JsonWriter& writer_;
};

// ---- Reading ----

int64_t IntegerOf(const Json& value, const std::string& path) {
  if (!value.is_number_integer()) RefuseJson(path, ShownJson(value), "a whole number");
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostNumber)) {
    RefuseJson(path, ShownJson(value), absl::StrCat("at most ", kMostNumber));
  }
  const auto number = value.get<int64_t>();
  if (number > kMostNumber || number < -kMostNumber) {
    RefuseJson(path, ShownJson(value),
               absl::StrCat("a number from ", -kMostNumber, " to ", kMostNumber));
  }
  return number;
}

std::string TextOf(const Json& value, const std::string& path) {
  if (!value.is_string()) RefuseJson(path, ShownJson(value), "a text");
  return value.get<std::string>();
}

const Json& ArrayOf(const Json& value, const std::string& path) {
  if (!value.is_array()) RefuseJson(path, ShownJson(value), "a list");
  return value;
}

// The fields of an object, of which none may be left when all that are known have been taken.
class ObjectReader final : public FieldVisitor {
 public:
  ObjectReader(const Json& object, std::string path, int within = 0)
      : object_(object), path_(std::move(path)), within_(within) {
    if (!object.is_object()) RefuseJson(path_, ShownJson(object), "an object");
  }

  // Null where it is left out.
  const Json* Take(const std::string& name) {
    taken_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  const Json& Need(const std::string& name, const char* expected) {
    const Json* value = Take(name);
    if (value == nullptr) RefuseJson(PathOf(name), "nothing", expected);
    return *value;
  }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(path_, path_.empty() ? "" : ".", name);
  }
  void CheckAllTaken() const {
    for (const auto& [name, value] : object_.items()) {
      if (taken_.count(name) == 0) {
        RefuseJson(PathOf(name), absl::StrCat("an unknown field, ", ShownJson(value)),
                   absl::StrJoin(taken_, ", "));
      }
    }
  }

  void Field(const char* name, int64_t& value, Presence presence) override {
    if (const Json* found = Find(name, presence, "a whole number"))
      value = IntegerOf(*found, PathOf(name));
  }
  void Field(const char* name, double& value, Presence presence) override {
    const Json* found = Find(name, presence, "a number");
    if (found == nullptr) return;
    if (!found->is_number()) RefuseJson(PathOf(name), ShownJson(*found), "a number");
    value = found->get<double>();
    if (!std::isfinite(value)) RefuseJson(PathOf(name), ShownJson(*found), "a finite number");
  }
  void Field(const char* name, bool& value, Presence presence) override {
    const Json* found = Find(name, presence, "true or false");
    if (found == nullptr) return;
    if (!found->is_boolean()) RefuseJson(PathOf(name), ShownJson(*found), "true or false");
    value = found->get<bool>();
  }
  void Field(const char* name, std::string& value, Presence presence) override {
    if (const Json* found = Find(name, presence, "a text")) value = TextOf(*found, PathOf(name));
  }
  void Field(const char* name, std::vector<int64_t>& value, Presence presence) override {
    const Json* found = Find(name, presence, "a list of whole numbers");
    if (found == nullptr) return;
    value.clear();
    if (!found->is_array()) {
      value.push_back(IntegerOf(*found, PathOf(name)));
      return;
    }
    for (size_t i = 0; i < found->size(); ++i)
      value.push_back(IntegerOf((*found)[i], absl::StrCat(PathOf(name), "[", i, "]")));
  }
  void Field(const char* name, AnyLayer& value, Presence presence) override {
    const Json* found = Find(name, presence, "a layer");
    if (found == nullptr) return;
    if (within_ == kMostWithin)
      RefuseJson(PathOf(name), "another layer",
                 absl::StrCat("at most ", kMostWithin, " within one another"));
    ObjectReader reader(*found, PathOf(name), within_ + 1);
    std::unique_ptr<Layer> layer = reader.NewLayerOfKind();
    reader.ReadLayer(*layer);
    value = AnyLayer(std::move(layer));
  }
  // The layer that "kind" says, with the fields it is made with.
  std::unique_ptr<Layer> NewLayerOfKind() {
    const std::string kind = TextOf(Need("kind", "a kind of layers"), PathOf("kind"));
    std::unique_ptr<Layer> layer = NewLayer(kind);
    if (layer != nullptr) return layer;
    RefuseJson(PathOf("kind"), absl::StrCat("\"", OneLine(kind.substr(0, kMostOfKind)), "\""),
               absl::StrCat("one of ", absl::StrJoin(LayerKinds(), ", "),
                            ", or a kind that RegisterLayer() has made known"));
  }
  // All fields but those that were taken.
  void ReadLayer(Layer& layer) {
    try {
      layer.VisitFields(*this);
    } catch (Error& error) {
      if (error.message().find("network JSON") == std::string::npos)
        error.AddContext(absl::StrCat("network JSON: ", path_));
      throw;
    }
    CheckAllTaken();
  }

 private:
  void ChoiceIndex(const char* name, int& index, absl::Span<const char* const> names) override {
    const Json* found = Find(name, Presence::kOptional, "a name");
    if (found == nullptr) return;
    const std::string text = TextOf(*found, PathOf(name));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == text) {
        index = static_cast<int>(i);
        return;
      }
    }
    RefuseJson(PathOf(name), ShownJson(*found),
               absl::StrCat("one of ", absl::StrJoin(names, ", ")));
  }
  const Json* Find(const char* name, Presence presence, const char* expected) {
    if (presence == Presence::kRequired) return &Need(name, expected);
    return Take(name);
  }

  const Json& object_;
  const std::string path_;
  const int within_;
  std::set<std::string> taken_;
};

DType InputType(const Json& value, const std::string& path) {
  const std::string name = TextOf(value, path);
  for (const DType type : {DType::kFloat32, DType::kInt64, DType::kInt32}) {
    if (name == DTypeName(type)) return type;
  }
  RefuseJson(path, ShownJson(value), "f32, i64 or i32");
}

InputConfig ReadInput(const Json& value, const std::string& path) {
  ObjectReader reader(value, path);
  InputConfig input;
  reader.Field("name", input.name, Presence::kRequired);
  std::vector<int64_t> dims;
  const Json& shape = reader.Need("shape", "a list of sizes");
  ArrayOf(shape, reader.PathOf("shape"));
  reader.Field("shape", dims, Presence::kRequired);
  try {
    input.shape = Shape(absl::MakeConstSpan(dims));
  } catch (const Error& error) {
    RefuseJson(reader.PathOf("shape"), ShownJson(shape),
               absl::StrCat("a shape that can be: ", error.message()));
  }
  if (const Json* type = reader.Take("type")) input.dtype = InputType(*type, reader.PathOf("type"));
  reader.CheckAllTaken();
  return input;
}

NodeConfig ReadNode(const Json& value, const std::string& path, size_t number,
                    const std::string& before) {
  ObjectReader reader(value, path);
  NodeConfig node;
  std::unique_ptr<Layer> layer = reader.NewLayerOfKind();
  node.name = absl::StrCat(number, ".", layer->Kind());
  reader.Field("name", node.name, Presence::kOptional);
  if (const Json* inputs = reader.Take("inputs")) {
    const std::string where = reader.PathOf("inputs");
    ArrayOf(*inputs, where);
    for (size_t i = 0; i < inputs->size(); ++i)
      node.inputs.push_back(TextOf((*inputs)[i], absl::StrCat(where, "[", i, "]")));
  } else {
    node.inputs = {before};
  }
  if (const Json* tied = reader.Take("tied")) {
    if (!tied->is_object()) RefuseJson(reader.PathOf("tied"), ShownJson(*tied), "an object");
    for (const auto& [own, other] : tied->items())
      node.tied[own] = TextOf(other, absl::StrCat(reader.PathOf("tied"), ".", own));
  }
  reader.ReadLayer(*layer);
  node.layer = AnyLayer(std::move(layer));
  return node;
}

}  // namespace

std::string NetworkToJson(const NetworkConfig& config, int indent) {
  JsonWriter writer(indent);
  writer.BeginObject();
  writer.Key("inputs");
  writer.BeginArray();
  for (const InputConfig& input : config.inputs) {
    const absl::Span<const int64_t> dims = input.shape.span();
    writer.BeginObject();
    writer.Key("name"), writer.Value(input.name);
    writer.Key("shape"), writer.Value(std::vector<int64_t>(dims.begin(), dims.end()));
    writer.Key("type"), writer.Value(DTypeName(input.dtype));
    writer.EndObject();
  }
  writer.EndArray();
  writer.Key("layers");
  writer.BeginArray();
  for (const NodeConfig& node : config.nodes) {
    if (!node.layer)
      ThrowInvalidArgument(absl::StrCat("network JSON: layer \"", node.name, "\" is null"));
    writer.BeginObject();
    writer.Key("kind"), writer.Value(node.layer->Kind());
    writer.Key("name"), writer.Value(node.name);
    writer.Key("inputs"), writer.Value(node.inputs);
    if (!node.tied.empty()) {
      writer.Key("tied");
      writer.BeginObject();
      for (const auto& [own, other] : node.tied) writer.Key(own), writer.Value(other);
      writer.EndObject();
    }
    FieldWriter fields(writer);
    // A writer changes nothing, and fields have one function for both directions.
    const_cast<Layer&>(*node.layer).VisitFields(fields);
    writer.EndObject();
  }
  writer.EndArray();
  writer.Key("outputs"), writer.Value(config.outputs);
  writer.EndObject();
  return writer.text();
}

NetworkConfig NetworkFromJson(absl::string_view text) {
  const JsonTree tree(text);
  const Json& root = tree.root();
  ObjectReader reader(root, "");
  NetworkConfig config;
  const Json& inputs = ArrayOf(reader.Need("inputs", "a list of inputs"), "inputs");
  for (size_t i = 0; i < inputs.size(); ++i)
    config.inputs.push_back(ReadInput(inputs[i], absl::StrCat("inputs[", i, "]")));
  const Json& layers = ArrayOf(reader.Need("layers", "a list of layers"), "layers");
  std::string before = config.inputs.empty() ? "" : config.inputs[0].name;
  for (size_t i = 0; i < layers.size(); ++i) {
    config.nodes.push_back(ReadNode(layers[i], absl::StrCat("layers[", i, "]"), i, before));
    before = config.nodes.back().name;
  }
  if (const Json* outputs = reader.Take("outputs")) {
    ArrayOf(*outputs, "outputs");
    for (size_t i = 0; i < outputs->size(); ++i)
      config.outputs.push_back(TextOf((*outputs)[i], absl::StrCat("outputs[", i, "]")));
  } else {
    config.outputs = {before};
  }
  reader.CheckAllTaken();
  return config;
}

}  // namespace tidepool::nn
