// Reads the Prometheus text format strictly, for tests: what it accepts a scraper accepts. Written from the
// format's description, not from ExpositionWriter.
#ifndef TIDEPOOL_MEMORY_METRICS_EXPOSITION_PARSER_H_
#define TIDEPOOL_MEMORY_METRICS_EXPOSITION_PARSER_H_

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace tidepool {

// Values by names of labels, as they were before they were escaped.
using ExpositionLabels = std::map<std::string, std::string>;

// The samples of one name.
struct ExpositionFamily {
  std::string type, help;                      // "counter", "gauge" or "histogram"; and its text
  std::map<ExpositionLabels, double> samples;  // each set of labels is there once
};

// What was read.
struct Exposition {
  std::map<std::string, ExpositionFamily> families;  // by name; of histograms x_sum and so on too
  std::string error;                                 // the first one, with its line; empty: none

  // NaN where there is no such sample.
  double Value(const std::string& name, const ExpositionLabels& labels = {}) const {
    const auto family = families.find(name);
    if (family == families.end()) return std::stod("nan");
    const auto sample = family->second.samples.find(labels);
    return sample == family->second.samples.end() ? std::stod("nan") : sample->second;
  }
};

// Reads a whole text, up to its first error.
class ExpositionParser {
 public:
  // Throws nothing but std::bad_alloc: what is wrong is in Exposition::error.
  static Exposition Parse(std::string_view text) { return ExpositionParser(text).Run(); }

 private:
  explicit ExpositionParser(std::string_view text) : text_(text) {}

  Exposition Run() {
    if (!text_.empty() && text_.back() != '\n') return Fail("the last line has no end");
    while (!text_.empty() && result_.error.empty()) {
      line_ = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(line_.size() + 1);
      const std::string whole(line_);
      if (!(Take("# HELP ") ? Help() : Take("# TYPE ") ? Type() : Sample())) {
        if (result_.error.empty()) Fail("cannot be read");
        result_.error += ": " + whole;
      }
    }
    return result_;
  }
  Exposition& Fail(const std::string& error) {
    result_.error = error;
    return result_;
  }
  bool Take(std::string_view prefix) {
    if (!line_.starts_with(prefix)) return false;
    line_.remove_prefix(prefix.size());
    return true;
  }
  std::string Name(bool label) {
    size_t n = 0;
    const auto letter = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c == ':' && !label);
    };
    while (n < line_.size() && (letter(line_[n]) || (n > 0 && line_[n] >= '0' && line_[n] <= '9')))
      ++n;
    const std::string name(line_.substr(0, n));
    line_.remove_prefix(n);
    return name;
  }
  // Up to `end`, which is taken: 0 is the end of the line.
  bool Escaped(char end, std::string* out) {
    while (!line_.empty()) {
      char c = line_[0];
      line_.remove_prefix(1);
      if (c == end) return true;
      if (c == '\\') {
        if (line_.empty()) return false;
        c = line_[0];
        line_.remove_prefix(1);
        if (c == 'n') {
          c = '\n';
        } else if (c != '\\' && (c != '"' || end != '"')) {
          return false;
        }
      }
      *out += c;
    }
    return end == 0;
  }
  bool Help() {
    const std::string name = Name(false);
    if (name.empty() || !Take(" ")) return false;
    const auto [family, is_new] = result_.families.try_emplace(name);
    if (!is_new) return Fail("a second HELP").error.empty();
    return Escaped(0, &family->second.help);
  }
  bool Type() {
    current_ = Name(false);
    if (current_.empty() || !Take(" ")) return false;
    ExpositionFamily& family = result_.families[current_];
    if (!family.type.empty()) return Fail("a second TYPE").error.empty();
    family.type = std::string(line_);
    return family.type == "counter" || family.type == "gauge" || family.type == "histogram";
  }
  bool IsOfCurrent(const std::string& name) {
    if (result_.families[current_].type != "histogram") return name == current_;
    return name == current_ + "_bucket" || name == current_ + "_sum" || name == current_ + "_count";
  }
  bool Sample() {
    const std::string name = Name(false);
    if (name.empty()) return false;
    if (!IsOfCurrent(name)) return Fail("is not of the family before it").error.empty();
    ExpositionLabels labels;
    if (Take("{")) {
      do {
        const std::string label = Name(true);
        if (label.empty() || !Take("=\"")) return false;
        const auto [at, is_new] = labels.try_emplace(label);
        if (!is_new || !Escaped('"', &at->second)) return false;
      } while (Take(","));
      if (!Take("}")) return false;
    }
    if (!Take(" ")) return false;
    if (Take("+") && line_ != "Inf") return false;
    double value = 0;  // by from_chars, as locales have other points
    const auto [end, wrong] = std::from_chars(line_.data(), line_.data() + line_.size(), value);
    if (wrong != std::errc() || end != line_.data() + line_.size()) return false;
    // Of a histogram by the name with its ending, beside it.
    if (!result_.families[name].samples.emplace(std::move(labels), value).second) {
      return Fail("a series is there twice").error.empty();
    }
    return true;
  }

  std::string_view text_, line_;
  std::string current_;
  Exposition result_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_METRICS_EXPOSITION_PARSER_H_
