#include "tidepool/ndarray/io/safetensors_format.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/ndarray/io/safetensors_info.h"

namespace tidepool {
namespace {

using absl::StatusCode;

SafetensorsHeader Parse(const std::string& json, uint64_t data_bytes = 4) {
  return ParseSafetensorsHeader(json, data_bytes, "f.st");
}

// A tensor "a" of one F32 with some field replaced.
std::string OneTensor(const std::string& dtype = "\"F32\"", const std::string& shape = "[1]",
                      const std::string& offsets = "[0,4]") {
  return "{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}}";
}

void ExpectDataLoss(const std::string& json, std::vector<std::string> parts,
                    uint64_t data_bytes = 4) {
  parts.push_back("f.st: ");
  EXPECT_THAT(ErrorOf([&] { Parse(json, data_bytes); }), IsError(StatusCode::kDataLoss, parts))
      << json;
}

TEST(SafetensorDtype, BitsAndOrder) {
  for (const auto& [name, bits] : std::vector<std::pair<const char*, int>>{
           {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
           {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
           {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
           {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
           {"I64", 64},        {"U64", 64}}) {
    EXPECT_EQ(SafetensorDtypeBits(name), bits) << name;
  }
  EXPECT_EQ(SafetensorDtypeBits("f32"), 0);
  EXPECT_EQ(SafetensorDtypeRank("F128"), -1);
  EXPECT_GT(SafetensorDtypeRank("I64"), SafetensorDtypeRank("F32"));
  EXPECT_GT(SafetensorDtypeRank("F32"), SafetensorDtypeRank("BF16"));
}

TEST(SafetensorsHeader, OrdersByOffset) {
  const SafetensorsHeader header = Parse(
      R"({"b":{"shape":[2],"data_offsets":[8,12],"dtype":"I16"},"e":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
      R"("a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"__metadata__":{"k":"v","":""}}  )",
      12);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].name, "e");
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_THAT(header.tensors[0].shape, testing::IsEmpty());
  EXPECT_THAT(header.tensors[2].shape, testing::ElementsAre(2));
  EXPECT_EQ(header.tensors[2].begin, 8u);
  EXPECT_EQ(header.data_bytes, 12u);
  EXPECT_THAT(header.metadata,
              testing::ElementsAre(testing::Pair("", ""), testing::Pair("k", "v")));
}

TEST(SafetensorsHeader, TakesWhatTheReferenceTakes) {
  EXPECT_THAT(Parse("{}", 0).tensors, testing::IsEmpty());
  EXPECT_EQ(Parse(R"({"__metadata__":null,"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})")
                .tensors.size(),
            1u);
  // Unknown fields, however nested.
  EXPECT_EQ(
      Parse(
          R"({"a":{"x":{"dtype":[1,{"y":[]}]},"z":[[],{}],"n":null,"dtype":"F32","b":true,"f":1.5,)"
          R"("m":-1,"shape":[1],"s":"t","data_offsets":[0,4],"x":7}})")
          .tensors.at(0)
          .bytes(),
      4u);
  EXPECT_EQ(Parse(OneTensor("\"F4\"", "[4,2]", "[0,4]")).tensors.size(), 1u);
  EXPECT_EQ(Parse(OneTensor() + " \n\t ").tensors.size(), 1u);
  EXPECT_EQ(Parse(R"({"":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})").tensors.at(0).name,
            "");
}

TEST(SafetensorsHeader, NotJson) {
  ExpectDataLoss("", {"byte 8", "header", "found nothing", "expected '{'"});
  ExpectDataLoss(" " + OneTensor(), {"byte 8", "found byte 32", "expected '{'"});
  ExpectDataLoss("[1]", {"byte 8", "expected '{'"});
  ExpectDataLoss("{\"a\":}", {"byte 13", "found", "expected valid JSON"});
  ExpectDataLoss("{\"a", {"byte", "expected valid JSON"});
  ExpectDataLoss(OneTensor() + "x", {"byte 62", "expected valid JSON"});
  ExpectDataLoss(OneTensor() + "{}", {"byte 62", "expected valid JSON"});
  ExpectDataLoss(OneTensor() + std::string(1, '\0'),
                 {"byte 62", "zero byte", "expected JSON padded with spaces"});
  ExpectDataLoss("{\"\xff\":1}", {"byte", "expected valid JSON in UTF-8"});
  ExpectDataLoss("{\"a\nb\":1}", {"byte", "expected valid JSON"});
  ExpectDataLoss(std::string(100000, '{'), {"byte 9", "expected valid JSON"});
}

TEST(SafetensorsHeader, WrongTypes) {
  ExpectDataLoss(R"({"a":[1]})",
                 {"tensor \"a\"", "found an array", "expected an object with dtype"});
  ExpectDataLoss(R"({"a":null})", {"tensor \"a\"", "found null", "expected an object with dtype"});
  ExpectDataLoss(R"({"a":true})", {"tensor \"a\"", "found true"});
  ExpectDataLoss(OneTensor("1"), {"tensor \"a\": dtype", "found 1", "expected a string"});
  ExpectDataLoss(OneTensor("\"F31\""),
                 {"tensor \"a\": dtype", "found \"F31\"", "expected BOOL, U8"});
  ExpectDataLoss(OneTensor("\"F32\"", "1"),
                 {"tensor \"a\": shape", "found 1", "expected an array"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1.0]"),
                 {"\"a\": shape", "found \"1.0\"", "expected whole numbers"});
  ExpectDataLoss(OneTensor("\"F32\"", "[-1]"),
                 {"\"a\": shape", "found -1", "expected whole numbers"});
  ExpectDataLoss(OneTensor("\"F32\"", "[\"1\"]"),
                 {"\"a\": shape", "found \"1\"", "expected whole numbers"});
  ExpectDataLoss(OneTensor("\"F32\"", "[[1]]"),
                 {"\"a\": shape", "found an array", "expected whole numbers"});
  ExpectDataLoss(OneTensor("\"F32\"", "[9223372036854775808]"),
                 {"\"a\": shape", "found 9223372036854775808", "2^63-1"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "{}"), {"\"a\": data_offsets", "found an object"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "[4]"),
                 {"\"a\": data_offsets", "found 1 numbers", "expected two"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "[0,4,8]"),
                 {"\"a\": data_offsets", "found a third", "expected two"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "[-0,4]"),
                 {"\"a\": data_offsets", "found -0", "expected two"});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "[0,1e99]"),
                 {"\"a\": data_offsets", "found \"1e99\""});
  ExpectDataLoss(OneTensor("\"F32\"", "[1]", "[0,99999999999999999999]"),
                 {"\"a\": data_offsets", "found"});
  ExpectDataLoss(R"({"__metadata__":{"k":1}})",
                 {"__metadata__: key \"k\"", "found 1", "expected a string"});
  ExpectDataLoss(R"({"__metadata__":[]})",
                 {"__metadata__", "found an array", "expected an object of strings"});
  ExpectDataLoss(R"({"__metadata__":{"k":{}}})", {"__metadata__: key \"k\"", "found an object"});
}

TEST(SafetensorsHeader, MissingAndDuplicate) {
  ExpectDataLoss(R"({"a":{}})", {"tensor \"a\"", "found no field dtype",
                                 "expected dtype, shape and data_offsets"});
  ExpectDataLoss(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})",
                 {"tensor \"a\"", "no field shape"});
  ExpectDataLoss(R"({"a":{"dtype":"F32","shape":[1]}})", {"tensor \"a\"", "no field data_offsets"});
  ExpectDataLoss(R"({"a":{"dtype":"F32","dtype":"F32"}})",
                 {"tensor \"a\": dtype", "duplicate", "once"});
  ExpectDataLoss(R"({"__metadata__":{"k":"1","k":"2"}})", {"key \"k\"", "duplicate", "once"});
  ExpectDataLoss(R"({"__metadata__":{},"__metadata__":{}})", {"__metadata__", "duplicate", "once"});
  const std::string tensor = OneTensor().substr(1, OneTensor().size() - 2);
  ExpectDataLoss("{" + tensor + "," + tensor + "}",
                 {"tensor \"a\"", "duplicate", "each name once"});
}

TEST(SafetensorsHeader, RangesMustTileTheData) {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)") + a +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + b + "}}";
  };
  EXPECT_EQ(Parse(two("[4,8]", "[0,4]"), 8).tensors.at(0).name, "b");
  ExpectDataLoss(two("[0,4]", "[5,9]"),
                 {"\"b\": data_offsets", "found [5,9], a hole", "expected begin 4"}, 9);
  ExpectDataLoss(two("[0,4]", "[3,7]"),
                 {"\"b\": data_offsets", "found [3,7], an overlap", "begin 4"}, 8);
  ExpectDataLoss(two("[4,8]", "[8,12]"), {"\"a\": data_offsets", "a hole", "expected begin 0"}, 12);
  ExpectDataLoss(
      OneTensor("\"F32\"", "[1]", "[0,5]"),
      {"\"a\": data_offsets", "found [0,5] of 5 bytes", "expected 4 bytes for [1] of F32"}, 5);
  ExpectDataLoss(two("[0,4]", "[4,0]"),
                 {"\"b\": data_offsets", "found [4,0]", "end not before begin"}, 4);
  ExpectDataLoss(OneTensor(), {"byte 62", "data", "found 5 bytes", "expected 4"}, 5);
  ExpectDataLoss(OneTensor(), {"byte 62", "data", "found 3 bytes", "expected 4"}, 3);
  ExpectDataLoss("{}", {"byte 10", "data", "found 1 bytes", "expected 0"}, 1);
}

TEST(SafetensorsHeader, SizesThatOverflowOrSplitBytes) {
  ExpectDataLoss(OneTensor("\"F32\"", "[4294967296,4294967296]", "[0,0]"),
                 {"\"a\": shape", "found [4294967296,4294967296] of F32", "overflows", "expected"});
  ExpectDataLoss(OneTensor("\"F4\"", "[3]", "[0,2]"),
                 {"\"a\": shape", "which is 12 bits", "whole number of bytes"});
  // A zero anywhere makes the tensor empty, whatever the others are.
  EXPECT_EQ(Parse(OneTensor("\"F32\"", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), 0)
                .data_bytes,
            0u);
}

TEST(SafetensorsHeader, NamesOfForeignOriginStayReadable) {
  ExpectDataLoss(R"({"new\nline":1})", {"tensor \"new\\nline\""});
  ExpectDataLoss("{\"" + std::string(5000, 'n') + "\":1}", {"(5000 bytes)"});
}

TEST(SafetensorsHeaderLength, CapAndFileSize) {
  const auto parse = [](std::string prefix, uint64_t file_bytes) {
    prefix.resize(8, '\0');
    return ParseSafetensorsHeaderLength(reinterpret_cast<const unsigned char*>(prefix.data()),
                                        file_bytes, "f.st");
  };
  EXPECT_EQ(parse("\x02\x01", 8 + 258), 258u);
  EXPECT_THAT(ErrorOf([&] { parse("\x02\x01", 8 + 257); }),
              IsError(StatusCode::kDataLoss,
                      {"f.st", "byte 0", "header length", "found 258", "at most 257"}));
  // 0x05f5e100 is the cap, 100 000 000.
  EXPECT_EQ(parse(std::string("\x00\xe1\xf5\x05", 4), 1'000'000'000), 100'000'000u);
  EXPECT_THAT(
      ErrorOf([&] { parse("\x01\xe1\xf5\x05", 1'000'000'000); }),
      IsError(StatusCode::kDataLoss, {"f.st", "byte 0", "found 100000001", "at most 100000000"}));
  EXPECT_THAT(ErrorOf([&] { parse(std::string(8, '\xff'), 100); }),
              IsError(StatusCode::kDataLoss, {"f.st", "found 18446744073709551615"}));
}

TEST(LayOutSafetensors, WidestFirstThenByName) {
  const SafetensorsHeader header = LayOutSafetensors(
      {},
      {{"z", "U8", {3}}, {"b", "F32", {2}}, {"a", "F32", {}}, {"q", "I64", {1}}, {"e", "F64", {0}}},
      "f.st");
  std::string order;
  for (const SafetensorInfo& tensor : header.tensors)
    order += tensor.name + std::to_string(tensor.begin) + " ";
  EXPECT_EQ(order, "q0 e8 a8 b12 z20 ");
  EXPECT_EQ(header.data_bytes, 23u);
}

TEST(LayOutSafetensors, Refusals) {
  const auto refusal = [](std::vector<SafetensorInfo> tensors) {
    return ErrorOf([&] { LayOutSafetensors({}, tensors, "f.st"); });
  };
  const StatusCode code = StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal({{"a", "float", {}}}),
              IsError(code, {"f.st", "\"a\": dtype", "found \"float\"", "expected BOOL"}));
  EXPECT_THAT(refusal({{"a", "F32", {2, -1}}}),
              IsError(code, {"\"a\": shape", "[2,-1]", "negative", "expected"}));
  EXPECT_THAT(refusal({{"a", "F4", {3}}}), IsError(code, {"\"a\": shape", "12 bits", "expected"}));
  EXPECT_THAT(refusal({{"a", "U8", {int64_t{1} << 60}},
                       {"b", "U8", {int64_t{1} << 60}},
                       {"c", "U8", {int64_t{1} << 60, 7}}}),
              IsError(code, {"\"c\": shape", "expected"}));
  EXPECT_THAT(refusal({{"a", "F32", {}}, {"b", "F32", {}}, {"a", "I64", {}}}),
              IsError(code, {"f.st", "tensor \"a\"", "found twice", "expected each name once"}));
  EXPECT_THAT(refusal({{"__metadata__", "F32", {}}}),
              IsError(code, {"f.st", "__metadata__", "reserved"}));
}

TEST(SerializeSafetensorsHeader, RoundTripPaddedAndUtf8Only) {
  const SafetensorsHeader header = LayOutSafetensors(
      {{"key \"1\"", "\xc3\xa9\n"}}, {{"quote\"\n", "F32", {2, 3}}, {"x", "U8", {1}}}, "f.st");
  const std::string bytes = SerializeSafetensorsHeader(header, "f.st");
  EXPECT_EQ(bytes.size() % 8, 0u);
  EXPECT_EQ(ParseSafetensorsHeaderLength(reinterpret_cast<const unsigned char*>(bytes.data()),
                                         bytes.size(), "f.st"),
            bytes.size() - 8);
  const SafetensorsHeader again = Parse(bytes.substr(8), header.data_bytes);
  EXPECT_EQ(again.metadata, header.metadata);
  ASSERT_EQ(again.tensors.size(), 2u);
  EXPECT_EQ(again.tensors[0].name, "quote\"\n");
  EXPECT_EQ(again.tensors[1].begin, 24u);

  const auto refusal = [](std::map<std::string, std::string> metadata,
                          std::vector<SafetensorInfo> tensors) {
    return ErrorOf(
        [&] { SerializeSafetensorsHeader(LayOutSafetensors(metadata, tensors, "f.st"), "f.st"); });
  };
  EXPECT_THAT(refusal({}, {{"\xff", "F32", {}}}),
              IsError(StatusCode::kInvalidArgument, {"f.st", "tensor name", "expected UTF-8"}));
  EXPECT_THAT(refusal({{"k", "\xc3"}}, {}),
              IsError(StatusCode::kInvalidArgument, {"f.st", "metadata value", "expected UTF-8"}));
  EXPECT_THAT(refusal({{"k", std::string(100'000'000, 'x')}}, {}),
              IsError(StatusCode::kInvalidArgument,
                      {"f.st", "header", "found 100000", "at most 100000000"}));
}

// The header that is written and the header that is read, while memory runs out anywhere.
TEST(SerializeSafetensorsHeader, MemoryThatRunsOutIsAnExceptionAndNothingElse) {
  const SafetensorsHeader header = LayOutSafetensors(
      {{"key, longer than what a string has room for", "value, longer than that as well, by far"}},
      {{"tensor, longer than what a string has room for", "F32", {2, 3}}, {"x", "U8", {1}}},
      "f.st");
  const std::string expected = SerializeSafetensorsHeader(header, "f.st");
  const auto with_faults = [](auto call) {
    int faults = 0;
    for (bool done = false; !done; ++faults) {
      until_fault = faults;
      done = Try(call);
    }
    return faults;
  };
  std::string bytes;
  EXPECT_GT(with_faults([&] { bytes = SerializeSafetensorsHeader(header, "f.st"); }), 3);
  EXPECT_EQ(bytes, expected);
  SafetensorsHeader read;
  EXPECT_GT(with_faults([&] {
              read = ParseSafetensorsHeader(absl::string_view(expected).substr(8),
                                            header.data_bytes, "f.st");
            }),
            3);
  EXPECT_EQ(read.metadata, header.metadata);
}

}  // namespace
}  // namespace tidepool
