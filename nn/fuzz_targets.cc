// Model files: each loads into a network that holds exactly what the file does, or is refused.
// Configurations as JSON: each is one that is written as it was read, or refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/graph_body.h"
#include "tidepool/nn/network_json.h"
#include "tidepool/nn/testing/file_mutators.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kMostRun = 1 << 12;  // elements of parameters, and of what one example makes

std::string FileOf(const Model& model) {
  const std::string path = testing::TempDir() + "/valid";
  SaveModel(model, path);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Those of MakeModel, and one of which thousands are read in the time of one of theirs.
std::vector<std::string> ModelFiles() {
  const NetworkConfig small = NetworkFromJson(
      R"({"inputs":[{"name":"x","shape":[2]}],"layers":[{"kind":"batch_norm"},{"kind":"dense","units":2}]})");
  return {FileOf(MakeModel("mlp", {1, 1, 1}, 1, 5, WorkspaceMode::kEnabled)),
          FileOf(MakeModel("lenet", {16, 16, 1}, 2, 5, WorkspaceMode::kEnabled)),
          FileOf(Model("small", 2, std::make_unique<Network>(small, NetworkOptions())))};
}

void ExpectHoldsTheFile(const Model& model, const std::string& path) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  ASSERT_EQ(model.network->Describe(), reader.metadata().at("architecture"));
  ASSERT_EQ(model.network->named_parameters().size(), reader.tensors().size());
  for (const NamedParameter& parameter : model.network->named_parameters()) {
    const SafetensorInfo& info = reader.Find(parameter.name);
    ASSERT_EQ(Shape(absl::MakeConstSpan(info.shape)), parameter.value.shape());
    ASSERT_EQ(std::memcmp(reader.data(info).data(), parameter.value.raw_data(), info.bytes()), 0);
  }
}

void ReadModel(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  try {
    ExpectHoldsTheFile(LoadModel(path), path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    throw;
  }
}

TIDEPOOL_FUZZ_TARGET(ModelFile, {.corpus = &ModelFiles,
                                 .mutate = &MutateHeader,
                                 .run = &ReadModel,
                                 .constant_bytes = size_t{2} << 20,
                                 .cases = 10000,
                                 .max_bytes = size_t{1} << 20});

std::vector<std::string> Configurations() {
  return {
      R"({"inputs":[{"name":"image","shape":[8,8,0]}],"layers":[{"kind":"conv2d","filters":4,"kernel":3}]})",
      R"({"inputs":[{"name":"image","shape":[8,8,1]}],"layers":[)"
      R"({"kind":"conv2d","filters":4,"kernel":3,"activation":"relu"},{"kind":"max_pool2d"},{"kind":"dense","units":3}]})",
      R"({"inputs":[{"name":"x","shape":[4,6],"type":"f32"}],"layers":[)"
      R"({"kind":"multi_head_attention","heads":2,"causal":true},{"kind":"layer_norm"},)"
      R"({"kind":"dense","units":6,"last_axis":true,"name":"a"},{"kind":"dense","units":6,"last_axis":true,"name":"b",)"
      R"("inputs":["a"],"tied":{"weight":"a.weight","bias":"a.bias"}}],"outputs":["b","a"]})",
      R"({"inputs":[{"name":"x","shape":[4]}],"layers":[{"kind":"batch_norm"},{"kind":"activation","function":"tanh"},)"
      R"({"kind":"group_norm","groups":2}]})",
      R"({"inputs":[{"name":"x","shape":[4]}],"layers":[{"kind":"dense","units":2147483649}]})",
      R"({"inputs":[{"name":"a","shape":[2,6]},{"name":"b","shape":[6]}],"layers":[{"kind":"lstm","units":3,"inputs":["a"],)"
      R"("name":"l"},{"kind":"last_time_step"},{"kind":"dense","units":3,"inputs":["b"],"name":"d"},)"
      R"({"kind":"merge","merge":"add","inputs":["1.last_time_step","d"]}]})"};
}

void ExpectSmallNumbers(const nlohmann::json& value) {
  if (value.is_number_integer()) {
    EXPECT_LE(std::abs(value.get<double>()), 2147483648.0);
  }
  if (value.is_structured()) {
    for (const auto& [name, each] : value.items()) ExpectSmallNumbers(each);
  }
}

// Without a network: what a configuration claims is not taken.
void ReadConfiguration(const std::string& bytes) {
  const NetworkConfig config = NetworkFromJson(bytes);
  const std::string text = NetworkToJson(config);
  const NetworkConfig again = NetworkFromJson(text);
  EXPECT_EQ(NetworkToJson(again), text);
  ExpectSmallNumbers(nlohmann::json::parse(text));
  const GraphBody body(config), body_again(again);
  EXPECT_EQ(body.Describe(), body_again.Describe());
  EXPECT_EQ(body.output_shapes(), body_again.output_shapes());
  EXPECT_EQ(body.output_shapes().size(), config.outputs.size());
  ASSERT_EQ(body.parameters().size(), body_again.parameters().size());
  std::set<std::string> names;
  for (size_t i = 0; i < body.parameters().size(); ++i) {
    const NamedSpec &one = body.parameters()[i], &other = body_again.parameters()[i];
    EXPECT_EQ(one.name, other.name);
    EXPECT_EQ(one.spec.shape, other.spec.shape);
    EXPECT_TRUE(names.insert(one.name).second) << "two parameters are called " << one.name;
  }
}

TIDEPOOL_FUZZ_TARGET(NetworkJson, {.corpus = &Configurations,
                                   .mutate = &MutateJson,
                                   .run = &ReadConfiguration,
                                   .cases = 20000});

// What the configuration's check took is a network that runs, and answers with the shapes that were
// worked out.
void RunConfiguration(const std::string& bytes) {
  const NetworkConfig config = NetworkFromJson(bytes);
  const GraphBody body(config);
  int64_t elements = 0;
  for (const NamedSpec& parameter : body.parameters())
    elements += parameter.spec.shape.NumElements();
  if (elements > kMostRun || body.cost_of_example().elements > kMostRun) {
    throw Error(absl::StatusCode::kResourceExhausted, "too large to be run thousands of times");
  }
  try {
    NetworkOptions options;
    options.mode = WorkspaceMode::kNone;
    options.draw_parameters = false;  // as those of a file
    Network network(config, options);
    std::vector<NDArray> inputs;
    for (const InputConfig& input : config.inputs) {
      std::vector<int64_t> dims = {2};
      dims.insert(dims.end(), input.shape.span().begin(), input.shape.span().end());
      inputs.push_back(Full(Shape(absl::MakeConstSpan(dims)), 0, input.dtype));
    }
    const Arrays outputs = network.Run(Arrays(inputs.begin(), inputs.end()));
    ASSERT_EQ(outputs.size(), body.output_shapes().size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const absl::Span<const int64_t> found = outputs[i].shape().span(),
                                      expected = body.output_shapes()[i].span();
      ASSERT_EQ(found.size(), expected.size() + 1);
      ASSERT_TRUE(found[0] == 2 && found.subspan(1) == expected) << outputs[i].shape().ToString();
    }
  } catch (const Error& error) {
    // Which layers take integers shows when they get some.
    for (const InputConfig& input : config.inputs) {
      if (input.dtype != DType::kFloat32) throw;
    }
    ADD_FAILURE() << "a network that was taken does not run: " << error.message();
  }
}

TIDEPOOL_FUZZ_TARGET(NetworkRuns, {.corpus = &Configurations,
                                   .mutate = &MutateJson,
                                   .run = &RunConfiguration,
                                   .constant_bytes = size_t{16} << 20,
                                   .cases = 5000});

}  // namespace
}  // namespace tidepool::nn
