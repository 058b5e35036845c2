// JsonWriter: JSON as text, value by value, without a tree of it in memory.
//
//   JsonWriter json(/*indent=*/2);
//   json.BeginObject();
//   json.Member("device", "host");
//   json.Key("bytes");
//   json.BeginArray();
//   for (int64_t size : sizes) json.Number(size);
//   json.EndArray();
//   json.EndObject();
//   return std::move(json).Take();
//
// The caller opens, closes and names in order; this writes commas, line breaks and escapes. Strings may
// hold anything: what is no UTF-8 becomes U+FFFD. When memory runs out, std::bad_alloc leaves and that
// is all (values of nlohmann::json whose text cannot be had end the process). One thread per writer.
#ifndef TIDEPOOL_MEMORY_IO_JSON_WRITER_H_
#define TIDEPOOL_MEMORY_IO_JSON_WRITER_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool {

// Bytes of the code point that `text`, which is not empty, begins with; 0 when it begins with none.
size_t CodePointBytes(absl::string_view text);

// True when `text` is UTF-8: no overlong forms, surrogates or code points above U+10FFFF.
bool IsUtf8(absl::string_view text);

// Appends `text` in quotes, with the escapes JSON asks for and no others.
void AppendJsonString(absl::string_view text, std::string* out);

class JsonWriter {
 public:
  // `indent` 0: all on one line.
  explicit JsonWriter(int indent = 0) : indent_(indent) {}

  void BeginObject() { Begin('{'); }
  void EndObject() { End('}'); }
  void BeginArray() { Begin('['); }
  void EndArray() { End(']'); }
  // Of the value that follows.
  void Key(absl::string_view name);
  void String(absl::string_view text);
  void Number(std::integral auto value) { Literal(absl::StrCat(value)); }
  // As it is: a number with a point, say.
  void Literal(absl::string_view text);

  void Member(absl::string_view name, absl::string_view text) {
    Key(name);
    String(text);
  }
  void Member(absl::string_view name, std::integral auto value) {
    Key(name);
    Number(value);
  }

  std::string Take() && { return std::move(text_); }

 private:
  void Begin(char bracket);
  void End(char bracket);
  void NextValue();
  void NewLine();

  const int indent_;
  int depth_ = 0;
  bool first_ = true;  // of the innermost array or object
  bool after_key_ = false;
  std::string text_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_JSON_WRITER_H_
