// Types of what layers are given: integers where they compute by floats, and the other way round.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network_json.h"
#include "tidepool/nn/testing/residual.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNothing[] = "nothing was thrown";

// Numbers of the layer's input are of its parameters' type; of integers a layer of floats makes nothing, or another type.
TEST(NetworkTypes, LayersOfFloatsRefuseIntegersAndThoseOfIndicesFloats) {
  const auto message = [](const std::string& layers, const std::string& type = "i64",
                          const std::string& shape = "[3,4]") {
    return MessageOf([&] {
      Network network(
          NetworkFromJson(absl::StrCat(R"({"inputs":[{"name":"x","shape":)", shape, R"(,"type":")",
                                       type, R"("}],"layers":[)", layers, "]}")));
    });
  };
  const char* const floats[] = {R"({"kind":"l2_norm"})",
                                R"({"kind":"scaling"})",
                                R"({"kind":"prelu"})",
                                R"({"kind":"dense","units":2,"bias":false})",
                                R"({"kind":"dense","units":2})",
                                R"({"kind":"lstm","units":2})",
                                R"({"kind":"gru","units":2})",
                                R"({"kind":"simple_rnn","units":2})",
                                R"({"kind":"layer_norm"})",
                                R"({"kind":"batch_norm"})",
                                R"({"kind":"rms_norm"})",
                                R"({"kind":"group_norm","groups":2})",
                                R"({"kind":"dropout"})",
                                R"({"kind":"activation"})",
                                R"({"kind":"average_pool1d"})",
                                R"({"kind":"max_pool1d"})",
                                R"({"kind":"global_pool"})",
                                R"({"kind":"position_embedding"})",
                                R"({"kind":"sinusoidal_positions"})",
                                R"({"kind":"multi_head_attention","heads":2})",
                                R"({"kind":"transformer_block","heads":2})",
                                R"({"kind":"conv1d","filters":2,"kernel":[2]})",
                                R"({"kind":"time_distributed","layer":{"kind":"dense","units":2}})",
                                R"({"kind":"bidirectional","layer":{"kind":"lstm","units":2}})",
                                R"({"kind":"merge","inputs":["x","x"],"merge":"average"})"};
  for (const char* const layer : floats) {
    const std::string kind = std::string(layer).substr(9, std::string(layer).find('"', 9) - 9);
    EXPECT_THAT(message(layer), AllOf(StartsWith("network: layers[0]: layer \"0"),
                                      HasSubstr("layer [" + (kind == "activation" ? "relu" : kind)),
                                      HasSubstr("input 0 is i64, expected floats")))
        << layer;
    EXPECT_EQ(message(layer, "f32"), kNothing) << layer;
  }
  // What only moves elements passes the type on.
  const std::string moved =
      R"({"kind":"permute","axes":[1,0]},{"kind":"reverse"},{"kind":"zero_padding","padding":[1]},)"
      R"({"kind":"cropping","cropping":[1]},{"kind":"reshape","shape":[-1]},{"kind":"repeat_vector","count":2},)"
      R"({"kind":"last_time_step"},{"kind":"flatten"},{"kind":"merge","inputs":["7.flatten","7.flatten"],"merge":"concat"})";
  EXPECT_THAT(message(moved + R"(,{"kind":"dense","units":2})"),
              AllOf(HasSubstr("layers[9]: layer \"9.dense\""), HasSubstr("input 0 is i64")));
  EXPECT_EQ(
      message(moved + R"(,{"kind":"embedding","entries":9,"width":2},{"kind":"dense","units":2})"),
      kNothing);
  EXPECT_THAT(message(moved + R"(,{"kind":"embedding","entries":9,"width":2})", "f32"),
              AllOf(HasSubstr("layer [embedding 9 of 2]: input 0 is f32, expected integers")));
  EXPECT_THAT(
      message(
          R"({"kind":"embedding","entries":9,"width":2,"name":"e"},{"kind":"flatten"},{"kind":"flatten","inputs":["x"],"name":"f"},)"
          R"({"kind":"merge","inputs":["1.flatten","f"],"merge":"concat"})"),
      AllOf(HasSubstr("layers[3]"), HasSubstr("input 1 is i64, expected f32 as input 0")));
}

// Gives integers of anything, of which nobody knows before it runs.
class Counts final : public Layer {
 public:
  std::string Kind() const override { return "test_counts"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override { return x * x; }
};

TEST(NetworkTypes, WhatLayersOfOnesOwnMakeIsLookedAtWhenItIsThere) {
  NetworkConfig config;
  config.inputs = {{"x", {4}, DType::kInt64}};
  config.outputs = {config.Add(Dense(2), {config.Add(Counts(), {"x"})})};
  Network network(config);
  const NDArray x = Ones({2, 4}, DType::kInt64);
  EXPECT_THAT(MessageOf([&] { network.Output(x); }),
              AllOf(HasSubstr("layer [dense 2"), HasSubstr("input 0 is i64, expected floats")));

  struct Program : Block {
    Part dense{*this, "dense", Dense(2)};
    bool casts;
    explicit Program(bool casts) : casts(casts) {}
    NDArray Forward(const NDArray& x) const override {
      return dense(casts ? Cast(x, DType::kFloat32) : x);
    }
  };
  EXPECT_THAT(MessageOf([&] {
                Network program({{"x", {4}, DType::kInt64}}, std::make_unique<Program>(false));
              }),
              AllOf(HasSubstr("block member [dense]"), HasSubstr("layer [dense 2"),
                    HasSubstr("input 0 is i64, expected floats")));
  Network program({{"x", {4}, DType::kInt64}}, std::make_unique<Program>(true));
  EXPECT_EQ(program.Output(x).dtype(), DType::kFloat32);
}

}  // namespace
}  // namespace tidepool::nn
