#include "tidepool/memory/metrics/exposition_writer.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/json_writer.h"

namespace tidepool {
namespace {

void AppendEscaped(std::string_view text, bool quoted, std::string* out) {
  for (const char c : text) {
    if (c == '\n') {
      *out += "\\n";
    } else if (c == '\\') {
      *out += "\\\\";
    } else if (c == '"' && quoted) {
      *out += "\\\"";
    } else {
      *out += c;
    }
  }
}

void AppendHex(unsigned char byte, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  *out += "\\\\x";  // one backslash, when it is read
  *out += kDigits[byte / 16];
  *out += kDigits[byte % 16];
}

// Different bytes give different texts: a value whose own letters are \x and digits would read as the byte
// they stand for, if they were left as they are.
void AppendUtf8(std::string_view value, std::string* out) {
  for (;;) {
    size_t plain = 0;
    while (plain < value.size() && static_cast<unsigned char>(value[plain]) < 0x80 &&
           value[plain] != '\0' && value[plain] != '\\' && value[plain] != '"' &&
           value[plain] != '\n') {
      ++plain;
    }
    out->append(value.data(), plain);
    value.remove_prefix(plain);
    if (value.empty()) return;
    size_t bytes = CodePointBytes({value.data(), value.size()});
    // Scrapers end a value at a zero byte.
    if (bytes == 0 || value[0] == '\0' || value.substr(0, 2) == "\\x") {
      bytes = 1;
      AppendHex(static_cast<unsigned char>(value[0]), out);
    } else {
      AppendEscaped(value.substr(0, bytes), /*quoted=*/true, out);
    }
    value.remove_prefix(bytes);
  }
}

}  // namespace

void ExpositionWriter::Family(std::string_view name, Type type, std::string_view help) {
  name_.assign(name.data(), name.size());
  absl::StrAppend(&text_, "# HELP ", name_, " ");
  AppendEscaped(help, /*quoted=*/false, &text_);
  constexpr const char* kTypes[] = {" counter\n", " gauge\n", " histogram\n"};
  absl::StrAppend(&text_, "\n# TYPE ", name_, kTypes[static_cast<int>(type)]);
}

void ExpositionWriter::Begin(std::initializer_list<Label> labels, std::string_view suffix,
                             std::string_view bound) {
  text_ += name_;
  text_.append(suffix.data(), suffix.size());
  char separator = '{';
  const auto add = [&](const Label& label) {
    if (label.value.empty()) return;
    text_ += separator;
    separator = ',';
    text_.append(label.name.data(), label.name.size());
    text_ += "=\"";
    AppendUtf8(label.value, &text_);
    text_ += '"';
  };
  for (const Label& label : labels) add(label);
  add({"le", bound});
  text_ += separator == ',' ? "} " : " ";
}

void ExpositionWriter::Sample(std::initializer_list<Label> labels, int64_t value) {
  Begin(labels);
  absl::StrAppend(&text_, value, "\n");
}

void ExpositionWriter::Sample(std::initializer_list<Label> labels, uint64_t value) {
  Begin(labels);
  absl::StrAppend(&text_, value, "\n");
}

void ExpositionWriter::Sample(std::initializer_list<Label> labels, double value) {
  Begin(labels);
  EndWith(value);
}

void ExpositionWriter::Histogram(std::initializer_list<Label> labels,
                                 std::span<const double> bounds, std::span<const int64_t> counts,
                                 double sum) {
  int64_t so_far = 0;
  for (size_t i = 0; i <= bounds.size(); ++i) {
    so_far += counts[i];
    std::string bound = "+Inf";
    if (i < bounds.size()) {
      bound.clear();
      AppendGeneral(&bound, bounds[i], 15);
    }
    Begin(labels, "_bucket", bound);
    absl::StrAppend(&text_, so_far, "\n");
  }
  Begin(labels, "_sum");
  EndWith(sum);
  Begin(labels, "_count");
  absl::StrAppend(&text_, so_far, "\n");
}

void ExpositionWriter::EndWith(double value) {
  if (std::isnan(value)) {
    text_ += "NaN\n";
  } else if (std::isinf(value)) {
    text_ += value < 0 ? "-Inf\n" : "+Inf\n";
  } else {
    AppendGeneral(&text_, value, 17);
    text_ += '\n';
  }
}

}  // namespace tidepool
