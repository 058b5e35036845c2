#include "tidepool/memory/metrics/exposition_writer.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

}  // namespace

void ExpositionWriter::Family(std::string_view name, Type type, std::string_view help) {
  name_.assign(name.data(), name.size());
  absl::StrAppend(&text_, "# HELP ", name_, " ");
  AppendEscaped(help, /*quoted=*/false, &text_);
  absl::StrAppend(&text_, "\n# TYPE ", name_, type == Type::kCounter ? " counter\n" : " gauge\n");
}

void ExpositionWriter::Begin(std::initializer_list<Label> labels) {
  text_ += name_;
  char separator = '{';
  for (const Label& label : labels) {
    if (label.value.empty()) continue;
    text_ += separator;
    separator = ',';
    text_.append(label.name.data(), label.name.size());
    text_ += "=\"";
    const absl::string_view value(label.value.data(), label.value.size());
    if (IsUtf8(value)) {
      AppendEscaped(label.value, /*quoted=*/true, &text_);
    } else {
      AppendEscaped(absl::CHexEscape(value), /*quoted=*/true, &text_);
    }
    text_ += '"';
  }
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
  if (std::isnan(value)) {
    text_ += "NaN\n";
  } else if (std::isinf(value)) {
    text_ += value < 0 ? "-Inf\n" : "+Inf\n";
  } else {
    absl::StrAppendFormat(&text_, "%.17g\n", value);
  }
}

}  // namespace tidepool
