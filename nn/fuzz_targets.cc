// Model files: each loads into a network that holds exactly what the file does, or is refused. Configurations as JSON: each
// is one that is written as it was read, or refused.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/network/graph_body.h"
#include "tidepool/nn/network_json.h"

namespace tidepool::nn {
namespace {

std::string ValidFile(const char* name, const Shape& input, int64_t classes) {
  const std::string path = testing::TempDir() + "/valid";
  SaveModel(MakeModel(name, input, classes, 5, WorkspaceMode::kEnabled), path);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> ModelFiles() {
  return {ValidFile("mlp", {1, 1, 1}, 1), ValidFile("lenet", {16, 16, 1}, 2)};
}

size_t HeaderBytes(const std::string& bytes) {
  uint64_t length = 0;
  if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
  return static_cast<size_t>(
      std::min<uint64_t>(length, bytes.size() - std::min<size_t>(bytes.size(), sizeof(length))));
}

// A number for another, or a word or bracket for one that may stand there too.
void MutateJson(ByteMutator& mutator, std::string& text) {
  const std::string words[] = {"dense",  "conv2d", "max_pool2d", "batch_norm", "group_norm", "activation", "relu", "tanh",
                               "inputs", "outputs", "name",      "kind",       "tied",       "units",      "kernel",
                               "f32",    "i64",    "0.dense",    "1.dense",    "x",          "null",       "true", "[]",
                               "{}",     "-1",     "1e400",      "1048576",    "4294967296", "0.5",        "\\n",  "\\ud800"};
  if (text.empty() || mutator.Below(4) == 0) return mutator.Mutate(text);
  std::vector<size_t> begins;
  const auto is_word = [&](size_t i) { return std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_word(i) && (i == 0 || !is_word(i - 1))) begins.push_back(i);
  }
  if (begins.empty()) return mutator.Mutate(text);
  const size_t begin = begins[mutator.Below(begins.size())];
  size_t end = begin;
  while (end < text.size() && is_word(end)) ++end;
  text.replace(begin, end - begin,
               mutator.Below(3) == 0 ? absl::StrCat(mutator.Number(1 << 20)) : words[mutator.Below(std::size(words))]);
}

// The header alone, most of the time; its length fits again.
void MutateModel(ByteMutator& mutator, std::string& bytes) {
  if (bytes.size() < 8 || mutator.Below(16) == 0) return mutator.Mutate(bytes);
  const size_t before = HeaderBytes(bytes);
  std::string header = bytes.substr(8, before);
  MutateJson(mutator, header);
  const uint64_t length = header.size();
  bytes = std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + bytes.substr(8 + before);
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
                                 .mutate = &MutateModel,
                                 .run = &ReadModel,
                                 .constant_bytes = size_t{2} << 20,
                                 .cases = 10000,
                                 .max_bytes = size_t{1} << 20});

std::vector<std::string> Configurations() {
  return {R"({"inputs":[{"name":"image","shape":[8,8,1]}],"layers":[)"
          R"({"kind":"conv2d","filters":4,"kernel":3,"activation":"relu"},{"kind":"max_pool2d"},{"kind":"dense","units":3}]})",
          R"({"inputs":[{"name":"x","shape":[4,6],"type":"f32"}],"layers":[)"
          R"({"kind":"multi_head_attention","heads":2,"causal":true},{"kind":"layer_norm"},)"
          R"({"kind":"dense","units":6,"last_axis":true,"name":"a"},{"kind":"dense","units":6,"last_axis":true,"name":"b",)"
          R"("inputs":["a"],"tied":{"weight":"a.weight","bias":"a.bias"}}],"outputs":["b","a"]})",
          R"({"inputs":[{"name":"x","shape":[4]}],"layers":[{"kind":"batch_norm"},{"kind":"activation","function":"tanh"},)"
          R"({"kind":"group_norm","groups":2}]})"};
}

// Without a network: what a configuration claims is not taken.
void ReadConfiguration(const std::string& bytes) {
  const NetworkConfig config = NetworkFromJson(bytes);
  const std::string text = NetworkToJson(config);
  EXPECT_EQ(NetworkToJson(NetworkFromJson(text)), text);
  const GraphBody body(config);
  for (const NamedSpec& parameter : body.parameters()) EXPECT_GE(parameter.spec.shape.NumElements(), 0);
  EXPECT_EQ(body.output_shapes().size(), config.outputs.size());
}

TIDEPOOL_FUZZ_TARGET(NetworkJson, {.corpus = &Configurations, .mutate = &MutateJson, .run = &ReadConfiguration, .cases = 20000});

}  // namespace
}  // namespace tidepool::nn
