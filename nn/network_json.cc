#include "tidepool/nn/network_json.h"

#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/layers/layer_kinds.h"

namespace tidepool::nn {
namespace {

using Json = nlohmann::json;  // for reading: finds fields by their names
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostNumber = int64_t{1} << 31;
constexpr size_t kMostShown = 80;
constexpr int kMostWithin = 16;  // layers within layers: files are not trusted with the stack

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return text;
}

// Of an input's text what a message can hold: short, without control characters.
std::string Plain(const std::string& text) {
  constexpr size_t kMost = 300;
  std::string plain;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      plain += "?";
    } else {
      plain += c;
    }
  }
  return text.size() > kMost ? plain + "..." : plain;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& found,
                         const std::string& expected) {
  ThrowInvalidArgument(absl::StrCat("network JSON: ", Plain(path),
                                    path.empty() ? "found " : ": found ", Plain(found),
                                    ", expected ", Plain(expected)));
}

// ---- Writing ----

class FieldWriter final : public FieldVisitor {
 public:
  explicit FieldWriter(OrderedJson& object) : object_(object) {}
  void Field(const char* name, int64_t& value, Presence) override { object_[name] = value; }
  void Field(const char* name, double& value, Presence) override { object_[name] = value; }
  void Field(const char* name, bool& value, Presence) override { object_[name] = value; }
  void Field(const char* name, std::string& value, Presence) override { object_[name] = value; }
  void Field(const char* name, std::vector<int64_t>& value, Presence) override {
    object_[name] = value;
  }
  void Field(const char* name, AnyLayer& value, Presence) override {
    if (!value) return;
    OrderedJson object = {{"kind", value->Kind()}};
    FieldWriter writer(object);
    const_cast<Layer&>(*value).VisitFields(writer);  // as in NetworkToJson
    object_[name] = std::move(object);
  }

 private:
  void ChoiceIndex(const char* name, int& index, absl::Span<const char* const> names) override {
    object_[name] = names[static_cast<size_t>(index)];
  }
  OrderedJson& object_;
};

// ---- Reading ----

int64_t IntegerOf(const Json& value, const std::string& path) {
  if (!value.is_number_integer()) Refuse(path, Shown(value), "a whole number");
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostNumber)) {
    Refuse(path, Shown(value), absl::StrCat("at most ", kMostNumber));
  }
  const auto number = value.get<int64_t>();
  if (number > kMostNumber || number < -kMostNumber) {
    Refuse(path, Shown(value), absl::StrCat("a number from ", -kMostNumber, " to ", kMostNumber));
  }
  return number;
}

std::string TextOf(const Json& value, const std::string& path) {
  if (!value.is_string()) Refuse(path, Shown(value), "a text");
  return value.get<std::string>();
}

const Json& ArrayOf(const Json& value, const std::string& path) {
  if (!value.is_array()) Refuse(path, Shown(value), "a list");
  return value;
}

// The fields of an object, of which none may be left when all that are known have been taken.
class ObjectReader final : public FieldVisitor {
 public:
  ObjectReader(const Json& object, std::string path, int within = 0)
      : object_(object), path_(std::move(path)), within_(within) {
    if (!object.is_object()) Refuse(path_, Shown(object), "an object");
  }

  // Null where it is left out.
  const Json* Take(const std::string& name) {
    taken_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }
  const Json& Need(const std::string& name, const char* expected) {
    const Json* value = Take(name);
    if (value == nullptr) Refuse(PathOf(name), "nothing", expected);
    return *value;
  }
  std::string PathOf(const std::string& name) const {
    return absl::StrCat(path_, path_.empty() ? "" : ".", name);
  }
  void CheckAllTaken() const {
    for (const auto& [name, value] : object_.items()) {
      if (taken_.count(name) == 0) {
        Refuse(PathOf(name), absl::StrCat("an unknown field, ", Shown(value)),
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
    if (!found->is_number()) Refuse(PathOf(name), Shown(*found), "a number");
    value = found->get<double>();
    if (!std::isfinite(value)) Refuse(PathOf(name), Shown(*found), "a finite number");
  }
  void Field(const char* name, bool& value, Presence presence) override {
    const Json* found = Find(name, presence, "true or false");
    if (found == nullptr) return;
    if (!found->is_boolean()) Refuse(PathOf(name), Shown(*found), "true or false");
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
      Refuse(PathOf(name), "another layer",
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
    Refuse(PathOf("kind"), absl::StrCat("\"", OneLine(kind.substr(0, kMostShown)), "\""),
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
    Refuse(PathOf(name), Shown(*found), absl::StrCat("one of ", absl::StrJoin(names, ", ")));
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
  Refuse(path, Shown(value), "f32, i64 or i32");
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
    Refuse(reader.PathOf("shape"), Shown(shape),
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
    if (!tied->is_object()) Refuse(reader.PathOf("tied"), Shown(*tied), "an object");
    for (const auto& [own, other] : tied->items())
      node.tied[own] = TextOf(other, absl::StrCat(reader.PathOf("tied"), ".", own));
  }
  reader.ReadLayer(*layer);
  node.layer = AnyLayer(std::move(layer));
  return node;
}

// What the parser says, without the name of its exception. It quotes by apostrophes, which need no escapes.
std::string WordsOf(const Json::exception& error) {
  std::string words = error.what();
  const size_t name_end = words.find("] ");
  if (words.rfind("[json.", 0) == 0 && name_end != words.npos) words.erase(0, name_end + 2);
  return absl::StrReplaceAll(OneLine(words.substr(0, 300)),
                             {{R"(\\)", R"(\\)"}, {R"(\')", "'"}, {R"(\")", "\""}});
}

// Looks through a text before anything is made of it: values within one another, which messages would go down by recursion, and
// fields that are there twice, of which the parser would keep the last, and zero bytes that are escaped. Linear, which the parser with a callback is not.
class TextCheck final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& text) override { return HasNoZero(text); }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Begin(); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t) override { return Begin(); }
  bool end_array() override { return End(); }
  bool key(string_t& name) override {
    HasNoZero(name);
    if (names_.back().insert(name).second) return true;
    ThrowInvalidArgument(
        absl::StrCat("network JSON: field ", Shown(Json(name)), " is there twice in one object"));
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    ThrowInvalidArgument(absl::StrCat("network JSON: ", WordsOf(error)));
  }

 private:
  // Names go to where a zero byte is the end of a text.
  static bool HasNoZero(const std::string& text) {
    if (text.find('\0') == text.npos) return true;
    ThrowInvalidArgument(
        absl::StrCat("network JSON: text ", Shown(Json(text)), " has a zero byte, expected none"));
  }
  bool Begin() {
    constexpr size_t kMostWithin = 64;
    if (names_.size() >= kMostWithin) {
      ThrowInvalidArgument(
          absl::StrCat("network JSON: values within one another are deeper than ", kMostWithin));
    }
    names_.emplace_back();
    return true;
  }
  bool End() {
    names_.pop_back();
    return true;
  }
  std::vector<std::set<std::string>> names_;  // of fields, by depth
};

}  // namespace

std::string NetworkToJson(const NetworkConfig& config, int indent) {
  OrderedJson root = OrderedJson::object();
  root["inputs"] = OrderedJson::array();
  for (const InputConfig& input : config.inputs) {
    const absl::Span<const int64_t> dims = input.shape.span();
    root["inputs"].push_back({{"name", input.name},
                              {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                              {"type", DTypeName(input.dtype)}});
  }
  root["layers"] = OrderedJson::array();
  for (const NodeConfig& node : config.nodes) {
    if (!node.layer)
      ThrowInvalidArgument(absl::StrCat("network JSON: layer \"", node.name, "\" is null"));
    OrderedJson object = {
        {"kind", node.layer->Kind()}, {"name", node.name}, {"inputs", node.inputs}};
    if (!node.tied.empty()) object["tied"] = node.tied;
    FieldWriter writer(object);
    // A writer changes nothing, and fields have one function for both directions.
    const_cast<Layer&>(*node.layer).VisitFields(writer);
    root["layers"].push_back(std::move(object));
  }
  root["outputs"] = config.outputs;
  return root.dump(indent, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
}

NetworkConfig NetworkFromJson(absl::string_view text) {
  // Which the parser takes for the end.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    ThrowInvalidArgument(
        absl::StrCat("network JSON: found a zero byte at byte ", nul, ", expected none"));
  }
  Json root;
  try {
    TextCheck check;
    Json::sax_parse(text.begin(), text.end(), &check);
    root = Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    ThrowInvalidArgument(absl::StrCat("network JSON: ", WordsOf(error)));
  }
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
