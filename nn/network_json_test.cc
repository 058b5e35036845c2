#include "tidepool/nn/network_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/testing/residual.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(NetworkJson, JsonAndBack) {
  const NetworkConfig config = SmallResidualConfig();
  const std::string text = NetworkToJson(config);
  const NetworkConfig read = NetworkFromJson(text);
  EXPECT_EQ(NetworkToJson(read), text);
  Network before(config, {.seed = 4}), after(read, {.seed = 4});
  EXPECT_EQ(before.parameters().ToVector<float>(), after.parameters().ToVector<float>());
  const NDArray x = Images(2).features[0];
  EXPECT_EQ(before.Output(x).ToVector<float>(), after.Output(x).ToVector<float>());
}

// Adds what it is given: of a kind that this program makes known.
class Sum final : public Layer {
 public:
  std::string Kind() const override { return "test_sum"; }
  Shape OutputShapeOf(absl::Span<const Shape> inputs) const override { return inputs[0]; }
  NDArray ForwardOf(LayerContext&, absl::Span<const NDArray> inputs) const override {
    return inputs[0] + inputs[1];
  }
};

TEST(NetworkJson, LayersOfOnesOwnAreReadOnceTheyAreKnown) {
  NetworkConfig config;
  const std::string x = config.AddInput("x", {3});
  config.outputs = {config.Add(Sum(), {x, config.Add(Dense(3), {x})})};
  const std::string text = NetworkToJson(config);
  EXPECT_THAT(MessageOf([&] { NetworkFromJson(text); }), HasSubstr("found \"test_sum\""));
  RegisterLayer<Sum>("test_sum");
  const NDArray ones = Ones({2, 3});
  Network before(config, {.seed = 4}), after(NetworkFromJson(text), {.seed = 4});
  EXPECT_EQ(before.Output(ones).ToVector<float>(), after.Output(ones).ToVector<float>());
}

// By how deep, how long and how strange a text is nothing is gone down into, held or shown that is not small.
TEST(NetworkJson, StrangeTextsAreRefusedInAFewWords) {
  const auto message = [](const std::string& text) {
    const std::string said = MessageOf([&] { NetworkFromJson(text); });
    EXPECT_LT(said.size(), 1500u);
    EXPECT_TRUE(std::none_of(said.begin(), said.end(), [](unsigned char c) {
      return c < 0x20 || c == 0x7f;
    })) << said;
    return said;
  };
  const std::string deep(200000, '[');
  EXPECT_THAT(message(deep), HasSubstr("deeper than 64"));
  EXPECT_THAT(message(R"({"inputs": [)" + deep + std::string(200000, ']') + R"(], "layers": []})"),
              HasSubstr("deeper than 64"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"({"a":)";
  EXPECT_THAT(message(objects), HasSubstr("deeper than 64"));
  const std::string name(100000, 'n');
  EXPECT_THAT(message(R"({"a\u001b)" + name + R"(": 1, "inputs": [], "layers": []})"),
              HasSubstr("an unknown field"));
  EXPECT_THAT(message(R"({"inputs": [{"name": "x", "shape": [)" + std::string(200000, '1') +
                      R"(]}], "layers": []})"),
              HasSubstr("number overflow"));
  EXPECT_THAT(message(R"({"inputs": [{"name": "x", "shape": [1]}], "layers": [{"kind": "dense\n)" +
                      name + R"("}]})"),
              HasSubstr("layers[0].kind"));
  std::string sizes = "1";
  for (int i = 0; i < 100000; ++i) sizes += ",1";
  EXPECT_THAT(message(R"({"inputs": [{"name": "x", "shape": [)" + sizes + R"(]}], "layers": []})"),
              HasSubstr("inputs[0].shape"));
  EXPECT_THAT(
      message(
          R"({"inputs": [{"name": "x", "shape": [1]}], "layers": [{"kind": "max_pool2d", "kernel": [)" +
          sizes + "]}]}"),
      HasSubstr("expected 2 numbers"));
}

TEST(NetworkJson, NothingStandsBehindAZeroByte) {
  const std::string text = NetworkToJson(SmallResidualConfig());
  for (const size_t at : {size_t{0}, text.size() / 2, text.size()}) {
    std::string broken = text;
    broken.insert(at, std::string("\0junk", 5));
    EXPECT_THAT(MessageOf([&] { NetworkFromJson(broken); }),
                HasSubstr("zero byte at byte " + std::to_string(at)));
  }
  for (const char* const text :
       {R"({"inputs": [{"name": "x\u0000y", "shape": [2]}], "layers": []})",
        R"({"inputs": [{"name": "x", "shape": [2]}], "layers": [], "out\u0000puts": ["x"]})"}) {
    EXPECT_THAT(MessageOf([&] { NetworkFromJson(text); }), HasSubstr("has a zero byte"));
  }
}

TEST(NetworkJson, ShortJsonIsAChain) {
  const NetworkConfig config = NetworkFromJson(R"({
    "inputs": [{"name": "image", "shape": [28, 28, 1]}],
    "layers": [{"kind": "conv2d", "filters": 20, "kernel": 5, "activation": "relu"},
               {"kind": "max_pool2d"},
               {"kind": "dense", "units": 10, "name": "classes"}]})");
  Network network(config);
  EXPECT_EQ(network.Describe(),
            "input [28, 28, 1]; conv2d 20 of 5x5 relu; max_pool2d 2x2 stride 2x2; dense 10");
  EXPECT_EQ(NamesOf(network)[0], "0.conv2d.filter");
  EXPECT_EQ(NamesOf(network)[2], "classes.weight");
}

TEST(NetworkJson, MistakesInJsonAreNamedByTheirPlace) {
  const auto message = [](const std::string& layers, const std::string& more = "") {
    return MessageOf([&] {
      const std::string text =
          R"({"inputs": [{"name": "x", "shape": [4]}], "layers": [)" + layers + "]" + more + "}";
      Network network(NetworkFromJson(text));
    });
  };
  EXPECT_THAT(message(R"({"kind": "dense", "units": "ten"})"),
              HasSubstr("network JSON: layers[0].units: found \"ten\", expected a whole number"));
  EXPECT_THAT(message(R"({"kind": "dense"})"),
              HasSubstr("layers[0].units: found nothing, expected a whole number"));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3, "unit": 4})"),
              AllOf(HasSubstr("layers[0].unit: found an unknown field, 4"), HasSubstr("units")));
  EXPECT_THAT(
      message(R"({"kind": "dense", "units": 3, "activation": "rely"})"),
      AllOf(HasSubstr("layers[0].activation: found \"rely\""), HasSubstr("relu, leaky_relu")));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3, "units": 4})"),
              HasSubstr("network JSON: layers[0]: field \"units\" is there twice in one object"));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 1e400})"),
              HasSubstr("network JSON: layers[0].units: number overflow parsing '1e400'"));
  EXPECT_THAT(message(R"({"kind": "zero_padding", "padding": [1, 2, 1e400]})"),
              HasSubstr("network JSON: layers[0].padding[2]: number overflow parsing '1e400'"));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3, "name": "a\u0000"})"),
              HasSubstr("network JSON: layers[0].name: text \"a\\u0000\" has a zero byte"));
  EXPECT_THAT(message(R"({"kind": "dense", "u\u0000": 3})"),
              HasSubstr("network JSON: layers[0]: text \"u\\u0000\" has a zero byte"));
  EXPECT_THAT(message(R"({"kind": "sense", "units": 3})"),
              AllOf(HasSubstr("layers[0].kind: found \"sense\""),
                    HasSubstr("batch_norm, bidirectional, conv1d")));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 99999999999})"),
              HasSubstr("layers[0].units: found 99999999999"));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3.5})"),
              HasSubstr("found 3.5, expected a whole number"));
  EXPECT_THAT(
      message(R"({"kind": "conv2d", "filters": 3, "kernel": [1, 2, 3]})"),
      HasSubstr("layers[0]: field \"kernel\" is [1,2,3], expected 2 numbers, or one for all"));
  EXPECT_THAT(
      message(R"({"kind": "dense", "units": 3, "inputs": ["y"]})"),
      HasSubstr("layer \"0.dense\": an input is \"y\", expected the name of an input or a layer"));
  EXPECT_THAT(message(R"({"kind": "conv2d", "filters": 3, "kernel": 3})"),
              AllOf(HasSubstr("layer \"0.conv2d\""),
                    HasSubstr("input shape [4], expected [height, width, channels]")));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3})", R"(, "output": [])"),
              HasSubstr("output: found an unknown field"));
  // What would only be wrong when it is first computed with.
  for (const char* const kind : {"batch_norm", "layer_norm", "rms_norm", "group_norm"}) {
    for (const char* const epsilon : {"-1", "-1e-300"}) {
      EXPECT_THAT(message(absl::StrCat(R"({"kind": ")", kind, R"(", "epsilon": )", epsilon,
                                       kind[0] == 'g' ? R"(, "groups": 1})" : "}")),
                  HasSubstr(absl::StrCat("epsilon ", epsilon, ", expected 0 or more")));
    }
  }
  EXPECT_THAT(
      MessageOf([] {
        Network network(NetworkFromJson(
            R"({"inputs": [{"name": "x", "shape": [3, 4]}], "layers": [{"kind": "transformer_block", "heads": 2, "epsilon": -1}]})"));
      }),
      HasSubstr("epsilon -1, expected 0 or more"));
  EXPECT_THAT(message("", ""), HasSubstr("no layers"));
  EXPECT_THAT(message("["), HasSubstr("network JSON: "));
  // The parser's own words, as they are to be read.
  EXPECT_THAT(MessageOf([] { NetworkFromJson("{\n  \"inputs\" [1]}"); }),
              AllOf(StartsWith("network JSON: parse error at line 2, column 12: "),
                    HasSubstr("unexpected '['; expected ':'")));
  EXPECT_EQ(MessageOf([] { NetworkFromJson("[]"); }), "network JSON: found [], expected an object");
  EXPECT_EQ(MessageOf([] { NetworkFromJson("null"); }),
            "network JSON: found null, expected an object");
  EXPECT_THAT(MessageOf([] {
                NetworkFromJson(R"({"inputs": [{"name": "x", "shape": [-1]}], "layers": []})");
              }),
              HasSubstr("inputs[0].shape: found [-1]"));
}

// By the place in the JSON, whatever layers are called.
TEST(NetworkJson, ShapesThatDoNotFitAreNamedByTheirPlace) {
  const auto message = [](const std::string& layers, const char* shape = "[4]") {
    return MessageOf([&] {
      Network network(NetworkFromJson(absl::StrCat(R"({"inputs": [{"name": "x", "shape": )", shape,
                                                   R"(}], "layers": [)", layers, "]}")));
    });
  };
  const std::string first = R"({"kind": "dense", "units": 3, "name": "first"}, )";
  EXPECT_THAT(
      message(first + R"({"kind": "conv2d", "filters": 3, "kernel": 3, "name": "classes"})"),
      AllOf(StartsWith("network: layers[1]: layer \"classes\""),
            HasSubstr("input shape [3], expected [height, width, channels]")));
  // What a layer finds of its fields and its input together.
  EXPECT_THAT(message(R"({"kind": "reshape", "shape": [5], "name": "classes"})"),
              StartsWith("network: layers[0]: layer \"classes\""));
  EXPECT_THAT(
      message(first +
              R"({"kind": "merge", "merge": "add", "inputs": ["x", "first"], "name": "sum"})"),
      StartsWith("network: layers[1]: layer \"sum\""));
  EXPECT_THAT(
      message(
          first +
          R"({"kind": "dense", "units": 3, "name": "tied", "tied": {"weight": "first.weight"}})"),
      AllOf(StartsWith("network: layers[1]: layer \"tied\": parameter \"weight\""),
            HasSubstr("expected trained ones of shape [3, 3]")));
  EXPECT_THAT(message(first + R"({"kind": "dense", "units": 3, "name": "z", "inputs": ["y"]})"),
              StartsWith("network: layers[1]: layer \"z\": an input is \"y\""));
  EXPECT_THAT(message(first + R"({"kind": "dense", "units": 3, "name": "z", "inputs": ["x"]})"),
              StartsWith("network: layers[0]: layer \"first\": no output"));
  EXPECT_THAT(message(R"({"kind": "dense", "units": 3})", "[4, 0]"),
              StartsWith("network: inputs[0]: input \"x\" is of shape [4, 0]"));
}

// Two fields of one's own, of which the first is no number or the second called as it likes.
class Fields final : public Layer {
 public:
  explicit Fields(double number, const char* name = "second") : number_(number), name_(name) {}
  std::string Kind() const override { return "fields"; }
  void VisitFields(FieldVisitor& visitor) override {
    visitor.Field("first", number_);
    visitor.Field(name_, number_);
  }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& x) const override { return x; }

 private:
  double number_;
  const char* name_;
};

TEST(NetworkJson, WhatCouldNotBeReadIsNotWritten) {
  const auto message = [](AnyLayer layer) {
    return MessageOf([&] {
      NetworkToJson(NetworkConfig::Sequential({4}, {Fields(1), std::move(layer)}));
    });
  };
  EXPECT_EQ(message(Fields(0.5)), "nothing was thrown");
  EXPECT_EQ(message(Fields(NAN)),
            "network JSON: layers[1].first: found nan, expected a finite number");
  EXPECT_EQ(message(Fields(-INFINITY)),
            "network JSON: layers[1].first: found -inf, expected a finite number");
  EXPECT_EQ(message(Fields(2, "inputs")),
            "network JSON: layers[1].inputs: found two fields, expected one of that name");
}

std::string OfOneLayer(const std::string& shape, const std::string& layer) {
  return absl::StrCat(R"({"inputs": [{"name": "x", "shape": )", shape,
                      R"(}], "layers": [{"kind": )", layer, "}]}");
}

TEST(NetworkJson, ASizeByAxisMayBeOneNumberForAll) {
  const auto output = [](const std::string& shape, const std::string& layer) {
    const Network network(NetworkFromJson(OfOneLayer(shape, layer)));
    std::vector<int64_t> dims = {1};
    for (const int64_t dim : network.input_shape().span()) dims.push_back(dim);
    const NDArray made = network.Run({Ones(Shape(dims))})[0];
    EXPECT_EQ(Shape(made.shape().span().subspan(1)), network.output_shape());
    return network.output_shape().ToString();
  };
  struct Case {
    const char *one, *each, *sequence, *image, *volume;
  };
  for (const Case& c :
       {Case{R"("upsampling", "factors": 2)", R"("upsampling", "factors": [2, 2])", "[8, 2]",
             "[8, 12, 2]", "[8, 12, 10, 2]"},
        Case{R"("resize", "sizes": 7)", R"("resize", "sizes": [7, 7])", "[7, 2]", "[7, 7, 2]",
             "[7, 7, 7, 2]"},
        Case{R"("zero_padding", "padding": 1)", R"("zero_padding", "padding": [1, 1, 1, 1])",
             "[6, 2]", "[6, 8, 2]", "[6, 8, 7, 2]"},
        Case{R"("cropping", "cropping": 1)", R"("cropping", "cropping": [1, 1, 1, 1])", "[2, 2]",
             "[2, 4, 2]", "[2, 4, 3, 2]"}}) {
    EXPECT_EQ(output("[4, 2]", c.one), c.sequence);
    EXPECT_EQ(output("[4, 6, 2]", c.one), c.image);
    EXPECT_EQ(output("[4, 6, 2]", c.each), c.image);
    EXPECT_EQ(output("[4, 6, 5, 2]", c.one), c.volume);
    EXPECT_THAT(MessageOf([&] { output("[4, 6, 5, 2]", c.each); }), HasSubstr("or one for all"));
  }
}

TEST(NetworkJson, WindowsThatNoOperatorTakesAreRefusedWhenTheNetworkIsMade) {
  for (const char* layer : {R"("average_pool1d", "kernel": 2, "stride": 2147483648)",
                            R"("max_pool1d", "kernel": 2, "stride": 2147483648)",
                            R"("average_pool1d", "kernel": 2147483648, "padding": 2147483647)"}) {
    EXPECT_THAT(MessageOf([&] { Network(NetworkFromJson(OfOneLayer("[4, 2]", layer))); }),
                AllOf(HasSubstr("_pool1d"), HasSubstr("2147483648"),
                      HasSubstr("none is above 1073741824")));
  }
  EXPECT_THAT(
      MessageOf([&] {
        Network(NetworkFromJson(OfOneLayer("[4, 4, 2]", R"("max_pool2d", "stride": 2147483648)")));
      }),
      HasSubstr("stride 2147483648"));
  EXPECT_THAT(MessageOf([&] {
                Network(NetworkFromJson(OfOneLayer(
                    "[4, 4, 4, 2]", R"("max_pool3d", "kernel": 2, "stride": 2147483648)")));
              }),
              HasSubstr("none is above 1073741824"));
}

}  // namespace
}  // namespace tidepool::nn
