// The parser of JSON: what it takes means what another one says, and what that one takes it takes.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory_resource>
#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/examples/containers/json.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

namespace {

using Other = nlohmann::json;
using tidepool::ByteMutator;

std::vector<std::string> Documents() {
  return {R"({"id": 17, "tags": ["a", "b\n\u00e4"], "at": {"x": -1.5e3, "y": null}, "ok": true})",
          R"([[], {}, "", 0, false, [1, [2, [3]]]])",
          std::string(150, '[') + std::string(150, ']'),
          std::string(300, '[') + std::string(300, ']'),
          R"({"a": 1, "a": 2})",
          R"("\ud83d\ude00")"};
}

// A bracket, a number or an escape for what stands there.
void Change(ByteMutator& mutator, std::string& text) {
  const std::string pieces[] = {"[",       "]",  "{",   "}",    ",",    ":",   "\"",
                                "\\u0041", "\\", "1e9", "-0.5", "null", "[[[["};
  if (mutator.Below(3) == 0) return mutator.Mutate(text);
  const size_t at = mutator.Below(text.size() + 1);
  text.replace(at, mutator.Below(3), pieces[mutator.Below(std::size(pieces))]);
}

void ExpectSame(const json::Value& found, const Other& expected) {
  if (const auto* const array = std::get_if<json::Array>(&found.value)) {
    ASSERT_TRUE(expected.is_array());
    ASSERT_EQ(array->size(), expected.size());
    for (size_t i = 0; i < array->size(); ++i) ExpectSame((*array)[i], expected[i]);
  } else if (const auto* const object = std::get_if<json::Object>(&found.value)) {
    ASSERT_TRUE(expected.is_object());
    ASSERT_EQ(object->size(), expected.size());
    // Of a name that is there twice the other parser keeps the last value.
    for (const auto& [name, value] : *object) ASSERT_TRUE(expected.contains(std::string(name)));
  } else if (const auto* const text = std::get_if<json::String>(&found.value)) {
    ASSERT_TRUE(expected.is_string());
    // Halves of pairs stay halves here.
    if (text->find("\xed") == json::String::npos) {
      ASSERT_EQ(std::string(*text), expected.get<std::string>());
    }
  } else if (const auto* const number = std::get_if<double>(&found.value)) {
    ASSERT_TRUE(expected.is_number());
    ASSERT_EQ(*number, expected.get<double>());
  } else if (const auto* const truth = std::get_if<bool>(&found.value)) {
    ASSERT_TRUE(expected.is_boolean() && *truth == expected.get<bool>());
  } else {
    ASSERT_TRUE(expected.is_null());
  }
}

int DepthOf(const json::Value& value) {
  int deepest = 0;
  if (const auto* const array = std::get_if<json::Array>(&value.value)) {
    for (const json::Value& each : *array) deepest = std::max(deepest, DepthOf(each));
  } else if (const auto* const object = std::get_if<json::Object>(&value.value)) {
    for (const auto& [name, each] : *object) deepest = std::max(deepest, DepthOf(each));
  }
  return deepest + 1;
}

// Bytes that need not be UTF-8, halves of pairs and control characters in strings: the other parser
// takes none.
bool IsPlain(const std::string& bytes) {
  return bytes.find("\\u") == std::string::npos &&
         std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' '; });
}

void Read(const std::string& bytes) {
  // It takes a zero byte for the end.
  const Other other = bytes.find('\0') != std::string::npos
                          ? Other(Other::value_t::discarded)
                          : Other::parse(bytes, nullptr, /*allow_exceptions=*/false);
  size_t deepest = 0, depth = 0;
  for (const char c : bytes) {
    depth += c == '[' || c == '{' ? 1 : 0;
    deepest = std::max(deepest, depth);
  }
  try {
    const json::Value value = json::Parse(bytes, std::pmr::new_delete_resource());
    if (!other.is_discarded()) ExpectSame(value, other);
    EXPECT_TRUE(!other.is_discarded() || !IsPlain(bytes)) << bytes;
    EXPECT_LE(DepthOf(value), 201);
  } catch (const json::ParseError& error) {
    // It has a limit of depth.
    EXPECT_TRUE(other.is_discarded() || deepest > 200) << error.what();
    throw tidepool::Error(absl::StatusCode::kDataLoss, "JSON: refused");
  }
}

TIDEPOOL_FUZZ_TARGET(Json, {.corpus = &Documents, .mutate = &Change, .run = &Read, .cases = 10000});

}  // namespace
