#include "tidepool/nn/model_file.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parameter_file.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

std::string TestPath(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A model file taken apart, to be changed and written again.
struct Parts {
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, std::string> metadata;
  std::map<std::string, Tensor> tensors;

  explicit Parts(const std::string& path) {
    const SafetensorsReader reader = SafetensorsReader::Open(path);
    metadata = reader.metadata();
    for (const SafetensorInfo& info : reader.tensors()) {
      const auto data = reader.data(info);
      tensors[info.name] = {info.dtype, info.shape,
                            std::string(reinterpret_cast<const char*>(data.data()), data.size())};
    }
  }
  void Write(const std::string& path) const {
    std::vector<SafetensorView> views;
    for (const auto& [name, tensor] : tensors) {
      views.push_back({name, tensor.dtype, tensor.shape,
                       absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                                           tensor.bytes.size())});
    }
    WriteSafetensors(path, metadata, views);
  }
};

std::string SavedMlp() {
  const std::string path = TestPath("mlp.safetensors");
  SaveModel(MakeModel("mlp", {2, 3, 1}, 4, 7, WorkspaceMode::kEnabled), path);
  return path;
}

// The message LoadModel refuses a changed MLP of input [2, 3, 1] and 4 classes with.
void ExpectRefused(const std::function<void(Parts&)>& change, std::vector<std::string> parts) {
  Parts file(SavedMlp());
  change(file);
  const std::string path = TestPath("changed.safetensors");
  file.Write(path);
  parts.push_back(path);
  parts.push_back("expected");
  EXPECT_THAT(ErrorOf([&] { LoadModel(path); }), IsError(StatusCode::kDataLoss, parts));
}

TEST(ModelFile, RoundTripIsExact) {
  for (const char* name : {"mlp", "lenet"}) {
    for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kNone}) {
      SCOPED_TRACE(name);
      const std::string path = TestPath("round_trip.safetensors");
      const Model model = MakeModel(name, {20, 18, 1}, 7, 3, mode);
      // Bits no arithmetic would keep: a signalling NaN, a denormal, minus zero.
      NDArray first = model.network->named_parameters()[0].value;
      const uint32_t bits[] = {0x7f800001u, 1u, 0x80000000u};
      std::memcpy(first.mutable_data<float>(), bits, sizeof(bits));
      SaveModel(model, path);
      const Model loaded = LoadModel(path, mode);
      EXPECT_EQ(loaded.name, name);
      EXPECT_EQ(loaded.classes, 7);
      EXPECT_EQ(loaded.network->Describe(), model.network->Describe());
      EXPECT_EQ(loaded.network->workspace_mode(), mode);
      const auto& expected = model.network->named_parameters();
      const auto& found = loaded.network->named_parameters();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].name, expected[i].name);
        ASSERT_EQ(found[i].value.shape(), expected[i].value.shape());
        EXPECT_EQ(std::memcmp(found[i].value.data<float>(), expected[i].value.data<float>(),
                              found[i].value.NumElements() * sizeof(float)),
                  0)
            << found[i].name;
      }
      const std::string again = TestPath("again.safetensors");
      SaveModel(loaded, again);
      EXPECT_EQ(ReadAll(again), ReadAll(path));
    }
  }
}

// What SavedMlp() has of layers, with `change` made to its JSON.
std::string ChangedNetwork(const std::string& from, const std::string& to) {
  std::string json = Parts(SavedMlp()).metadata["network"];
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << json;
  return json.replace(at, from.size(), to);
}

TEST(ModelFile, Metadata) {
  const Parts file(SavedMlp());
  EXPECT_EQ(file.metadata.at("architecture"),
            "input [2, 3, 1]; dense 256 relu; dense 128 relu; dense 4");
  EXPECT_EQ(file.metadata.at("model"), "mlp");
  EXPECT_EQ(file.metadata.at("classes"), "4");
  EXPECT_THAT(file.metadata.at("network"),
              HasSubstr(R"({"inputs":[{"name":"input","shape":[2,3,1],"type":"f32"}])"));
  EXPECT_EQ(file.metadata.at("type"), "f32");
  EXPECT_EQ(file.metadata.size(), 6u);
  for (const auto& [field, value] : file.metadata) {
    if (field == "type") continue;  // which files of before do not have
    ExpectRefused([&, name = field](Parts& changed) { changed.metadata.erase(name); },
                  {"metadata has no \"" + field + "\""});
  }
}

TEST(ModelFile, NotesComeBackAndHideNoField) {
  Model model = MakeModel("mlp", {4, 4, 1}, 3, 1, WorkspaceMode::kEnabled);
  model.notes = {{"normalizer", "scale 1\n\"quoted\""},
                 {"", "of no name"},
                 {"classes", "eight"},
                 {"\xC3\xA4", "\xC3\xB6"}};
  const std::map<std::string, std::string> notes = model.notes;
  Model moved = std::move(model);
  const std::string path = TestPath("notes.safetensors");
  SaveModel(moved, path);
  Model loaded = LoadModel(path);
  EXPECT_EQ(loaded.notes, notes);
  EXPECT_EQ(loaded.classes, 3);
  moved = LoadModel(path);
  EXPECT_EQ(moved.notes, notes);
  moved.notes["broken"] = "\xFF";
  EXPECT_THROW(SaveModel(moved, path), Error);
}

TEST(ModelFile, WrongFields) {
  auto set = [](const char* field, std::string value) {
    return [=](Parts& file) { file.metadata[field] = value; };
  };
  ExpectRefused(set("format", "pt"), {"\"format\" is \"pt\"", "expected \"tidepool\""});
  ExpectRefused(set("format", "a\nb\x1b[2J"), {"\"format\" is \"a\\nb\\x1b[2J\""});
  ExpectRefused(set("format", std::string(100000, 'x')), {"xxx\"..."});
  for (const char* bad : {"0", "-1", "", "x", "4.0", "1048577", "99999999999999999999", "4\n5"}) {
    ExpectRefused(set("classes", bad), {"\"classes\" holds", "a number from 1 to 1048576"});
  }
  for (const char* bad : {"", "f16", "F64", "f32\n"})
    ExpectRefused(set("type", bad), {"\"type\" holds", "f32 or f64"});
  ExpectRefused(set("type", "f64"), {"is F32 [", "expected F64 ["});
  ExpectRefused(set("classes", "5"), {"\"classes\" is 5", "the network's outputs [4]"});
  ExpectRefused(set("architecture", "input [2, 3, 1]; dense 256"),
                {"\"architecture\" is \"input [2, 3, 1]; dense 256\"", "dense 256 relu"});
  ExpectRefused(set("architecture", "a\nb"), {"\"a\\nb\""});
  for (const char* bad : {"", "{", "[]", "null", "{\"inputs\":[],\"layers\":[]}", "\n\x01"}) {
    ExpectRefused(set("network", bad),
                  {"\"network\" holds", "expected a network that can be made"});
  }
  ExpectRefused(set("network", std::string(100000, '[')), {"[[[\"..."});
  ExpectRefused(set("network", ChangedNetwork("\"dense\"", "\"dance\"")),
                {"layers[0].kind: found", "dance", "one of activation, average_pool1d"});
  ExpectRefused(set("network", ChangedNetwork("[2,3,1]", "[2,3,1,1,1,1,1,1,1]")),
                {"inputs[0].shape"});
  ExpectRefused(set("network", ChangedNetwork("[2,3,1]", "[2,-3,1]")), {"inputs[0].shape"});
}

// The name is only a name, which comes back as it was or is refused, and is fit for messages.
TEST(ModelFile, Names) {
  for (const std::string& name :
       {std::string(), std::string("\xc3\xbc \"ber\""), std::string(200, 'c')}) {
    const std::string path = TestPath("named.safetensors");
    Model model = MakeModel("mlp", {2, 3, 1}, 4, 7, WorkspaceMode::kEnabled);
    model.name = name;
    SaveModel(model, path);
    EXPECT_EQ(LoadModel(path).name, name);
  }
  for (const std::string& name : {std::string(201, 'c'), std::string("a\nb"),
                                  std::string("a\0b", 3), std::string(100000, 'c')}) {
    ExpectRefused([&](Parts& file) { file.metadata["model"] = name; },
                  {"metadata \"model\" holds \"", "at most 200 bytes without control characters"});
    Model model = MakeModel("mlp", {2, 3, 1}, 4, 7, WorkspaceMode::kEnabled);
    model.name = name;
    EXPECT_THAT(
        ErrorOf([&] { CheckModelCanBeSaved(model); }),
        IsError(StatusCode::kInvalidArgument, {"at most 200 bytes without control characters"}));
  }
}

// What the metadata claims and the tensors do not hold is refused before room is made for it:
// these networks would have terabytes.
TEST(ModelFile, HugeSizes) {
  const auto set = [](const std::string& json, const std::string& architecture) {
    return [=](Parts& file) {
      file.metadata["network"] = json;
      file.metadata["architecture"] = architecture;
    };
  };
  ExpectRefused(set(ChangedNetwork("\"units\":256", "\"units\":1048576000"),
                    "input [2, 3, 1]; dense 1048576000 relu; dense 128 relu; dense 4"),
                {"\"0.dense.weight\" is F32 [256, 6]", "expected F32 [1048576000, 6]"});
  ExpectRefused(set(ChangedNetwork("[2,3,1]", "[1048576,1048576,1]"),
                    "input [1048576, 1048576, 1]; dense 256 relu; dense 128 relu; dense 4"),
                {"\"0.dense.weight\" is F32 [256, 6]", "expected F32 [256, 1099511627776]"});
  ExpectRefused(set(ChangedNetwork("[2,3,1]", "[1048576,1048576,1048576]"), ""),
                {"inputs[0].shape", "more than 2^59 elements"});
  ExpectRefused(set(ChangedNetwork("\"units\":256", "\"units\":99999999999"), ""),
                {"layers[0].units: found 99999999999"});
}

TEST(ModelFile, WrongTensors) {
  ExpectRefused([](Parts& file) { file.tensors.erase("1.dense.bias"); },
                {"\"1.dense.bias\" is missing", "expected F32 [128]"});
  ExpectRefused(
      [](Parts& file) {
        file.tensors["extra\n"] = {"F32", {1}, "abcd"};
      },
      {"\"extra\\n\" is unknown", "expected 6 tensors"});
  ExpectRefused(
      [](Parts& file) {
        file.tensors["1.dense.bia"] = file.tensors["1.dense.bias"];
        file.tensors.erase("1.dense.bias");
      },
      {"\"1.dense.bias\" is missing"});
  ExpectRefused([](Parts& file) { file.tensors["2.dense.bias"].dtype = "I32"; },
                {"\"2.dense.bias\" is I32 [4]", "expected F32 [4]"});
  ExpectRefused(
      [](Parts& file) {
        file.tensors["2.dense.bias"].shape = {2, 2};
      },
      {"\"2.dense.bias\" is F32 [2, 2]", "expected F32 [4]"});
  ExpectRefused(
      [](Parts& file) {
        file.tensors["2.dense.bias"].shape.assign(1000, 1);
        file.tensors["2.dense.bias"].shape[0] = 4;
      },
      {"\"2.dense.bias\" is F32 [4, 1, 1, 1, 1, 1, 1, 1]..."});
}

TEST(ModelFile, BrokenFiles) {
  const std::string bytes = ReadAll(SavedMlp());
  for (const size_t length : {size_t{0}, size_t{7}, size_t{8}, size_t{100}, bytes.size() - 1}) {
    const std::string path = WriteTestFile("cut", bytes.substr(0, length));
    EXPECT_THAT(ErrorOf([&] { LoadModel(path); }), IsError(StatusCode::kDataLoss, {path}));
  }
  const std::string text = WriteTestFile("text\nfile", "this is not a model file, it is text");
  EXPECT_THAT(ErrorOf([&] { LoadModel(text); }),
              IsError(StatusCode::kDataLoss, {"text\\nfile", "header length"}));
  EXPECT_THAT(ErrorOf([] { LoadModel("/none/model"); }),
              IsError(StatusCode::kNotFound, {"/none/model"}));
  EXPECT_THAT(ErrorOf([] { LoadModel("/dev/null"); }),
              IsError(StatusCode::kInvalidArgument, {"/dev/null", "device"}));
  EXPECT_THAT(ErrorOf([] { LoadModel(testing::TempDir()); }),
              IsError(StatusCode::kFailedPrecondition, {"Is a directory"}));
}

TEST(ModelFile, LoadsInTheModeThatIsAskedFor) {
  const std::string path = SavedMlp();
  EXPECT_EQ(LoadModel(path, WorkspaceMode::kSeparate).network->workspace_mode(),
            WorkspaceMode::kSeparate);
}

class Private final : public Layer {
 public:
  explicit Private(const char* kind = "test_private") : kind_(kind) {}
  std::string Kind() const override { return kind_; }
  std::string Describe() const override { return "private"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  std::vector<ParameterSpec> Parameters(const Shape& input) const override {
    return {{"scale", input, Initializer::Ones()}};
  }
  NDArray Forward(LayerContext& context, const NDArray& input) const override {
    return input * context.parameters[0];
  }

 private:
  const char* kind_;
};

// A field that files do not get.
class Forgetful final : public Layer {
 public:
  explicit Forgetful(int64_t times = 1) : times_(times) {}
  std::string Kind() const override { return "test_forgetful"; }
  std::string Describe() const override { return "forgetful " + std::to_string(times_); }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& input) const override {
    return input * static_cast<double>(times_);
  }

 private:
  int64_t times_;
};

struct Program : Block {
  Part part{*this, "part", Private()};
  NDArray Forward(const NDArray& x) const override { return part(x); }
};

// After hours of training it would be too late: what cannot be loaded again is refused when asked,
// and never written.
TEST(ModelFile, WhatCouldNotBeLoadedAgainIsNotSaved) {
  const std::string path = WriteTestFile("kept", "what was there");
  const auto model = [](std::unique_ptr<Network> network) {
    return Model("mine", 4, std::move(network));
  };
  const auto refused = [&](const Model& m, std::vector<std::string> parts) {
    EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(m); }),
                IsError(StatusCode::kInvalidArgument, parts));
    const std::string message(ErrorOf([&] { CheckModelCanBeSaved(m); }).message());
    EXPECT_EQ(message.find("could not be loaded again"),
              message.rfind("could not be loaded again"));
    parts.push_back(path);
    EXPECT_THAT(ErrorOf([&] { SaveModel(m, path); }), IsError(StatusCode::kInvalidArgument, parts));
    EXPECT_EQ(ReadAll(path), "what was there");
  };
  refused(model(std::make_unique<Network>(Shape{4}, std::vector<AnyLayer>{Private()})),
          {"model \"mine\" could not be loaded again",
           "layer \"0.test_private\" is of kind \"test_private\""});
  refused(model(std::make_unique<Network>(std::vector<InputConfig>{{"x", {4}}},
                                          std::make_unique<Program>())),
          {"its network is a program", "SaveParameters()"});
  Model noted = model(std::make_unique<Network>(Shape{4}, std::vector<AnyLayer>{Dense(4)}));
  noted.notes["said"] = "\xff";
  refused(noted, {"model \"mine\" could not be loaded again", "its file"});
  RegisterLayer<Forgetful>("test_forgetful");
  refused(model(std::make_unique<Network>(Shape{4}, std::vector<AnyLayer>{Forgetful(3)})),
          {"do not describe them"});
}

// A few bytes of configuration that ask for gigabytes once the model is used.
TEST(ModelFile, WhatOneExampleTakesIsLimited) {
  const std::string path = TestPath("large.safetensors");
  SaveModel(Model("large", 4,
                  std::make_unique<Network>(
                      Shape{4}, std::vector<AnyLayer>{Dense(4), RepeatVector(1 << 26)})),
            path);
  EXPECT_THAT(
      ErrorOf([&] { LoadModel(path); }),
      IsError(StatusCode::kDataLoss, {path, "numbers of one example", "at most 134217728"}));
  EXPECT_EQ(LoadModel(path, WorkspaceMode::kEnabled, Host(), int64_t{1} << 30).classes, 4);
}

TEST(ModelFile, ALayerOfOnesOwnThatIsRegisteredIsLoaded) {
  RegisterLayer("test_private_known", [] {
    return std::unique_ptr<Layer>(std::make_unique<Private>("test_private_known"));
  });
  const std::string path = TestPath("own.safetensors");
  Model model("mine", 4,
              std::make_unique<Network>(
                  Shape{4}, std::vector<AnyLayer>{Private("test_private_known"), Dense(4)}, 5));
  CheckModelCanBeSaved(model);
  SaveModel(model, path);
  const Model loaded = LoadModel(path);
  EXPECT_EQ(loaded.network->parameters().ToVector<float>(),
            model.network->parameters().ToVector<float>());
  EXPECT_THAT(ErrorOf([] { RegisterLayer<Private>("other"); }),
              IsError(StatusCode::kInvalidArgument, {"\"other\" makes layers of kind"}));
  EXPECT_THAT(ErrorOf([] {
                RegisterLayer("dense",
                              [] { return std::unique_ptr<Layer>(std::make_unique<Dense>(0)); });
              }),
              IsError(StatusCode::kInvalidArgument, {"\"dense\" is known already"}));
}

}  // namespace
}  // namespace tidepool::nn
