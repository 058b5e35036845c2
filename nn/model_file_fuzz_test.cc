// Every damaged model file loads into a network that holds exactly what the file does or throws
// tidepool::Error, and none makes the loader ask for more memory than the file's size explains.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string ValidFile(const char* name, const Shape& input, int64_t classes) {
  const std::string path = testing::TempDir() + "/valid";
  SaveModel(MakeModel(name, input, classes, 5, WorkspaceMode::kEnabled), path);
  return ReadAll(path);
}

size_t HeaderLength(const std::string& file) {
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof(length));
  return length;
}

std::string WithHeader(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

void ExpectHoldsTheFile(const Model& model, const std::string& path) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  ASSERT_EQ(model.name, reader.metadata().at("model"));
  ASSERT_EQ(model.network->Describe(), reader.metadata().at("architecture"));
  ASSERT_EQ(model.network->output_shape(), Shape({model.classes}));
  ASSERT_EQ(model.network->NumParameters() * sizeof(float), reader.data_bytes());
  ASSERT_EQ(model.network->named_parameters().size(), reader.tensors().size());
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    const SafetensorInfo& info = reader.Find(parameter.name);
    ASSERT_EQ(Shape(absl::MakeConstSpan(info.shape)), parameter.value.shape());
    ASSERT_EQ(std::memcmp(reader.data(info).data(), parameter.value.data<float>(), info.bytes()),
              0);
  }
}

bool LoadsOrProperError(const std::string& bytes) {
  const std::string path = WriteTestFile("case", bytes);
  try {
    const Model model = LoadModel(path);
    ExpectHoldsTheFile(model, path);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(MessageFlaw(error), "");
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not a tidepool::Error: " << other.what();
  }
  return false;
}

void ExpectModestMemory() {
  for (const DeviceMemory& device : MemoryTracker::Global().Snapshot().devices) {
    EXPECT_LT(device.total.peak_bytes, 64 << 20);
  }
}

TEST(ModelFileFuzz, DamagedFiles) {
  ByteMutator mutator(FuzzSeed(), {ValidFile("mlp", {1, 1, 1}, 1)}, 1 << 20);
  const int cases = FuzzCases(5000);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    accepted += LoadsOrProperError(mutator.Next());
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  EXPECT_GT(accepted, cases / 200);  // damage to values alone
  EXPECT_LT(accepted, cases * 9 / 10);
  ExpectModestMemory();
}

TEST(ModelFileFuzz, DamagedHeaders) {
  const std::string mlp = ValidFile("mlp", {1, 1, 1}, 1);
  const std::string lenet = ValidFile("lenet", {16, 16, 1}, 2);
  const std::string mlp_data = mlp.substr(8 + HeaderLength(mlp));
  const std::string lenet_data = lenet.substr(8 + HeaderLength(lenet));
  ByteMutator of_mlp(FuzzSeed() + 1,
                     {mlp.substr(8, HeaderLength(mlp)), lenet.substr(8, HeaderLength(lenet))});
  const int cases = FuzzCases(20000);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    // The data's length tells most headers of LeNet from those of MLP.
    std::string header = of_mlp.Next();
    const bool convolutional = header.find("conv2d") != std::string::npos;
    accepted += LoadsOrProperError(WithHeader(header, convolutional ? lenet_data : mlp_data));
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, cases / 2);
  ExpectModestMemory();
}

// Headers that are well-formed and lie.
TEST(ModelFileFuzz, LyingMetadata) {
  const auto network = [](const std::string& shape, const std::string& layers) {
    return R"({"inputs":[{"name":"x","shape":)" + shape + R"(}],"layers":[)" + layers + "]}";
  };
  const std::string layers =
      R"({"kind":"dense","units":256,"activation":"relu"},)"
      R"({"kind":"dense","units":128,"activation":"relu"},{"kind":"dense","units":1})";
  const std::string right = network("[1,1,1]", layers);
  const std::map<std::string, std::vector<std::string>> values = {
      {"format", {"tidepool", "tidepool", "tidepool", "pt", ""}},
      {"model", {"mlp", "mlp", "lenet", "", "mlp "}},
      {"classes", {"1", "1", "2", "0", "-1", "1048576", "4294967297", "1e3", " 1", "+1", "01"}},
      {"network",
       {right, right, right, network("[1]", layers), network("[28,28,1]", layers),
        network("[1048576,1048576,1048576]", layers), network("[1048576,1048576,1]", layers),
        network("[0,1,1]", layers), network("[1,1,1,1,1,1,1,1,1]", layers),
        network("[1,1,1]", R"({"kind":"max_pool2d","kernel":[4,1000000]})"), network("[1,1,1]", ""),
        "{", "",
        network("[1,1,1]",
                R"({"kind":"dense","units":256,"inputs":["1.dense"]},{"kind":"dense","units":1})"),
        network("[1,1,1]", R"({"kind":"dense","units":256,"tied":{"weight":"0.dense.weight"}})")}},
      {"architecture", {"input [1, 1, 1]; dense 256 relu; dense 128 relu; dense 1", "", "input"}}};
  WriteTestFile("lies", ValidFile("mlp", {1, 1, 1}, 1));
  const SafetensorsReader reader = SafetensorsReader::Open(testing::TempDir() + "/lies");
  std::mt19937_64 random(FuzzSeed() + 2);
  const std::string path = testing::TempDir() + "/lying";
  const int cases = FuzzCases(5000);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    std::map<std::string, std::string> metadata;
    for (const auto& [field, choices] : values)
      metadata[field] = choices[random() % choices.size()];
    std::vector<SafetensorInfo> infos = reader.tensors();
    if (random() % 4 == 0) std::swap(infos[random() % infos.size()].name, infos[0].name);
    const SafetensorsHeader header = LayOutSafetensors(metadata, infos, path);
    std::string bytes = SerializeSafetensorsHeader(header, path);
    for (const SafetensorInfo& info : reader.tensors()) {
      const auto data = reader.data(info);
      bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    }
    accepted += LoadsOrProperError(bytes);
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, cases / 2);
  ExpectModestMemory();
}

}  // namespace
}  // namespace tidepool::nn
