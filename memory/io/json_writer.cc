#include "tidepool/memory/io/json_writer.h"

#include <cstddef>

namespace tidepool {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

void AppendEscaped(char c, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  switch (c) {
    case '"':
      *out += "\\\"";
      return;
    case '\\':
      *out += "\\\\";
      return;
    case '\b':
      *out += "\\b";
      return;
    case '\f':
      *out += "\\f";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) >= 0x20) {
    *out += c;
    return;
  }
  *out += "\\u00";
  *out += kDigits[c >> 4];
  *out += kDigits[c & 15];
}

}  // namespace

size_t CodePointBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const size_t bytes = byte(0) < 0xC2   ? 0
                       : byte(0) < 0xE0 ? 2
                       : byte(0) < 0xF0 ? 3
                       : byte(0) < 0xF5 ? 4
                                        : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // The second byte rules out overlong forms, surrogates and what lies above U+10FFFF.
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;
  return bytes;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CodePointBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

void AppendJsonString(absl::string_view text, std::string* out) {
  *out += '"';
  while (!text.empty()) {
    const size_t bytes = CodePointBytes(text);
    if (bytes == 1) {
      AppendEscaped(text[0], out);
    } else if (bytes > 1) {
      out->append(text.data(), bytes);
    } else {
      *out += kReplacement;
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  *out += '"';
}

void JsonWriter::NewLine() {
  if (indent_ == 0) return;
  text_ += '\n';
  text_.append(static_cast<size_t>(indent_ * depth_), ' ');
}

void JsonWriter::NextValue() {
  if (std::exchange(after_key_, false)) return;
  if (!std::exchange(first_, false)) text_ += ',';
  if (depth_ > 0) NewLine();
}

void JsonWriter::Begin(char bracket) {
  NextValue();
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::End(char bracket) {
  --depth_;
  if (!first_) NewLine();
  text_ += bracket;
  first_ = false;
}

void JsonWriter::Key(absl::string_view name) {
  NextValue();
  AppendJsonString(name, &text_);
  text_ += indent_ > 0 ? ": " : ":";
  after_key_ = true;
}

void JsonWriter::String(absl::string_view text) {
  NextValue();
  AppendJsonString(text, &text_);
}

void JsonWriter::Literal(absl::string_view text) {
  NextValue();
  text_.append(text.data(), text.size());
}

}  // namespace tidepool
