// Texts of network JSON (network_json.h): the tree that one is, checked, and the writing of one. nlohmann's trees take memory when
// they go, and end the process where there is none: the tree here goes without, and writing makes none.
#ifndef TIDEPOOL_NN_NETWORK_JSON_TEXT_H_
#define TIDEPOOL_NN_NETWORK_JSON_TEXT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace tidepool::nn {

// Throws kInvalidArgument: "network JSON: layers[2].filters: found "x", expected a whole number". Of what it is told it takes what a
// message can hold: the beginning, without control characters.
[[noreturn]] void RefuseJson(const std::string& path, const std::string& found,
                             const std::string& expected);
// A value as messages show it.
std::string ShownJson(const nlohmann::json& value);

class JsonTree {
 public:
  // Throws kInvalidArgument for what is not JSON, a field that is there twice, which the parser would take the last of, zero
  // bytes, written out or escaped, as names go to where they end a text, numbers that no double holds and values that are more than
  // 64 deep within one another, naming the place or the line. Memory: some times the text.
  explicit JsonTree(absl::string_view text);
  ~JsonTree();
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;
  const nlohmann::json& root() const { return root_; }

 private:
  nlohmann::json root_;
};

// Writes a value one part after the other: as nlohmann's dump() has it, texts that are no UTF-8 with a mark in the place of what
// is none.
class JsonWriter {
 public:
  explicit JsonWriter(int indent) : indent_(indent) {}  // spaces a level; -1: all on one line

  void BeginObject() { Begin('{'); }
  void EndObject() { End('}'); }
  void BeginArray() { Begin('['); }
  void EndArray() { End(']'); }
  // Before each value of an object. Throws kInvalidArgument for one that is there already.
  void Key(const std::string& name);
  void Value(const std::string& text) { Leaf(text); }
  void Value(const char* text) { Leaf(text); }
  void Value(int64_t number) { Leaf(number); }
  void Value(bool is_so) { Leaf(is_so); }
  // Throws kInvalidArgument for what is not finite, which JSON has no text for.
  void Value(double number);
  void Value(const std::vector<int64_t>& numbers) { Values(numbers); }
  void Value(const std::vector<std::string>& texts) { Values(texts); }

  const std::string& text() const { return text_; }

 private:
  struct Level {
    bool is_array;
    int64_t values = 0;
    std::string key;             // of the last value
    std::set<std::string> keys;  // of an object
  };
  void Begin(char bracket);
  void End(char bracket);
  void NewLine();
  void BeforeElement();
  void Leaf(const nlohmann::json& value);
  template <typename Elements>
  void Values(const Elements& elements) {
    BeginArray();
    for (const auto& element : elements) Value(element);
    EndArray();
  }
  std::string Path() const;

  const int indent_;
  std::string text_;
  std::vector<Level> levels_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_JSON_TEXT_H_
