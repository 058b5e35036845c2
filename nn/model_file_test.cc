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
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"

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

TEST(ModelFile, Metadata) {
  const std::map<std::string, std::string> expected = {
      {"format", "tidepool"},
      {"model", "mlp"},
      {"classes", "4"},
      {"input", "2,3,1"},
      {"architecture", "input [2, 3, 1]; dense 256 relu; dense 128 relu; dense 4"}};
  EXPECT_EQ(Parts(SavedMlp()).metadata, expected);
  for (const auto& [field, value] : expected) {
    ExpectRefused([&](Parts& file) { file.metadata.erase(field); },
                  {"metadata has no \"" + field + "\""});
  }
}

TEST(ModelFile, WrongFields) {
  auto set = [](const char* field, std::string value) {
    return [=](Parts& file) { file.metadata[field] = value; };
  };
  ExpectRefused(set("format", "pt"), {"\"format\" is \"pt\"", "expected \"tidepool\""});
  ExpectRefused(set("format", "a\nb\x1b[2J"), {"\"format\" is \"a\\nb\\x1b[2J\""});
  ExpectRefused(set("format", std::string(100000, 'x')), {"xxx\"..."});
  ExpectRefused(set("model", "resnet"), {"\"resnet\"", "expected lenet or mlp"});
  ExpectRefused(set("model", "a\nb"), {"a\\nb"});
  ExpectRefused(set("model", std::string(100000, '\n')), {"\\n\\n"});
  for (const char* bad : {"0", "-1", "", "x", "4.0", "1048577", "99999999999999999999", "4\n5"}) {
    ExpectRefused(set("classes", bad), {"\"classes\" holds", "a number from 1 to 1048576"});
    ExpectRefused(set("input", bad), {"\"input\" holds", "a number from 1 to 1048576"});
  }
  ExpectRefused(set("input", "2,3,"), {"\"input\" holds \"\""});
  ExpectRefused(set("input", "1,1,1,1,1,1,2,3,1"), {"\"input\" has rank 9", "at most 8"});
  ExpectRefused(set("architecture", "input [2, 3, 1]; dense 256"),
                {"\"architecture\" is \"input [2, 3, 1]; dense 256\"", "dense 256 relu"});
  ExpectRefused(set("architecture", "a\nb"), {"\"a\\nb\""});
}

// What the metadata claims and the tensors do not hold is refused before room is made for it:
// these networks would have terabytes.
TEST(ModelFile, HugeSizes) {
  ExpectRefused([](Parts& file) { file.metadata["classes"] = "1048576"; },
                {"\"2.dense.weight\" is F32 [4, 128]", "expected F32 [1048576, 128]"});
  ExpectRefused([](Parts& file) { file.metadata["input"] = "1048576,1048576,1"; },
                {"\"0.dense.weight\" is F32 [256, 6]", "expected F32 [256, 1099511627776]"});
  ExpectRefused([](Parts& file) { file.metadata["input"] = "1048576,1048576,1048576"; },
                {"input [1048576, 1048576, 1048576]", "more than 2^59 elements"});
}

TEST(ModelFile, OtherArchitecture) {
  ExpectRefused([](Parts& file) { file.metadata["model"] = "lenet"; },
                {"model \"lenet\" of input [2, 3, 1]", "conv2d"});
  const std::string path = TestPath("other.safetensors");
  for (const auto& [is, claims, missing] :
       {std::tuple("mlp", "lenet", "0.conv2d.filter"), {"lenet", "mlp", "0.dense.weight"}}) {
    SaveModel(MakeModel(is, {28, 28, 1}, 10, 1, WorkspaceMode::kNone), path);
    Parts file(path);
    file.metadata["model"] = claims;
    file.Write(path);
    EXPECT_THAT(ErrorOf([&] { LoadModel(path); }),
                IsError(StatusCode::kDataLoss, {path, missing, "is missing"}));
  }
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

TEST(ModelFile, ModeThatIsNotBuilt) {
  const std::string path = SavedMlp();
  EXPECT_THAT(ErrorOf([&] { LoadModel(path, WorkspaceMode::kSeparate); }),
              IsError(StatusCode::kUnimplemented, {"separate", "not built"}));
}

TEST(ModelFile, MakeModelRefuses) {
  auto make = [](const char* name, const Shape& input, int64_t classes) {
    return [=] { MakeModel(name, input, classes, 1, WorkspaceMode::kNone); };
  };
  EXPECT_THAT(ErrorOf(make("foo", {28, 28, 1}, 10)),
              IsError(StatusCode::kInvalidArgument, {"\"foo\"", "lenet or mlp"}));
  EXPECT_THAT(ErrorOf(make("mlp", {28, 28, 1}, 0)),
              IsError(StatusCode::kInvalidArgument, {"at least one unit"}));
  ErrorOf(make("lenet", {4, 4, 1}, 10));
}

TEST(ModelFile, PathsThatCannotBeWritten) {
  const Model model = MakeModel("mlp", {1, 1, 1}, 1, 1, WorkspaceMode::kNone);
  for (const std::string& path :
       {std::string("/none/model"), testing::TempDir(), std::string("/dev/null"), std::string()}) {
    for (const Error& error : {ErrorOf([&] { CheckModelPathIsWritable(path); }),
                               ErrorOf([&] { SaveModel(model, path); })}) {
      EXPECT_EQ(MessageFlaw(error), "");
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    }
  }
}

TEST(ModelFile, CheckingAPathLeavesNothingAndKeepsWhatIsThere) {
  const std::string path = WriteTestFile("precious", "content");
  CheckModelPathIsWritable(path);
  EXPECT_EQ(ReadAll(path), "content");
  const std::string fresh = TestPath("fresh");
  CheckModelPathIsWritable(fresh);
  EXPECT_FALSE(std::ifstream(fresh).good());
}

TEST(ModelTest, ANetworkThatDoesNotFitItIsRefused) {
  const auto message = [](int64_t classes, std::unique_ptr<Network> network) {
    return std::string(
        CatchStatus([&] { Model("digits", classes, std::move(network)); }).message());
  };
  const auto network = [] { return std::make_unique<Network>(Shape{4}, MlpLayers(10)); };
  EXPECT_THAT(message(5, network()),
              HasSubstr("model \"digits\": 5 classes, but its network's outputs are [10]"));
  EXPECT_THAT(message(10, nullptr), HasSubstr("model \"digits\": no network"));
  EXPECT_EQ(message(10, network()), "");
}

TEST(ModelFile, AModelWithoutANetworkIsNotSaved) {
  const std::string path = WriteTestFile("no network", "what was there");
  Model nothing, model = MakeModel("mlp", {4, 4, 1}, 3, 0, WorkspaceMode::kEnabled);
  EXPECT_THAT(ErrorOf([&] { SaveModel(nothing, path); }),
              IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Model moved = std::move(model);
  EXPECT_THAT(ErrorOf([&] { SaveModel(model, path); }),
              IsError(StatusCode::kInvalidArgument, {"SaveModel", path, "the model has no network"}));
  const Network taken = std::move(*moved.network);
  EXPECT_THAT(ErrorOf([&] { SaveModel(moved, path); }),
              IsError(StatusCode::kFailedPrecondition, {"the network was moved from"}));
  EXPECT_EQ(ReadAll(path), "what was there");
}

}  // namespace
}  // namespace tidepool::nn
