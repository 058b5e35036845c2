#include "tidepool/examples/containers/json.h"

#include <charconv>
#include <utility>

namespace json {
namespace {

constexpr int kDeepest = 200;

class Parser {
 public:
  Parser(std::string_view text, std::pmr::memory_resource* resource)
      : text_(text), resource_(resource) {}

  Value Document() {
    Value value = ParseValue(0);
    SkipSpace();
    if (at_ != text_.size()) Fail("the end");
    return value;
  }

 private:
  [[noreturn]] void Fail(const std::string& expected) const {
    throw ParseError(expected, at_, text_.substr(std::min(at_, text_.size()), 1));
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Fail(std::string("'") + c + "'");
  }
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Value ParseValue(int depth) {
    if (depth > kDeepest) Fail("at most 200 values in each other");
    SkipSpace();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '{') return {ParseObject(depth)};
    if (c == '[') return {ParseArray(depth)};
    if (c == '"') return {ParseString()};
    if (TakeWord("null")) return {nullptr};
    if (TakeWord("true")) return {true};
    if (TakeWord("false")) return {false};
    if (c == '-' || (c >= '0' && c <= '9')) return {ParseNumber()};
    Fail("a value");
  }
  Object ParseObject(int depth) {
    Object object(resource_);
    Expect('{');
    if (Take('}')) return object;
    do {
      SkipSpace();
      String name = ParseString();
      Expect(':');
      object.emplace(std::move(name), ParseValue(depth + 1));
    } while (Take(','));
    Expect('}');
    return object;
  }
  Array ParseArray(int depth) {
    Array array(resource_);
    Expect('[');
    if (Take(']')) return array;
    do {
      array.push_back(ParseValue(depth + 1));
    } while (Take(','));
    Expect(']');
    return array;
  }
  bool IsDigit(size_t at) const {
    return at < text_.size() && text_[at] >= '0' && text_[at] <= '9';
  }
  double ParseNumber() {
    // Fewer than std::from_chars takes, such as "-inf", "01" and "1.".
    size_t at = at_ + (text_[at_] == '-' ? 1 : 0);
    if (!IsDigit(at) || (text_[at] == '0' && IsDigit(at + 1))) Fail("a number");
    while (IsDigit(at)) ++at;
    if (at < text_.size() && text_[at] == '.' && !IsDigit(at + 1)) Fail("a number");
    double number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc()) Fail("a number");
    at_ += static_cast<size_t>(end - begin);
    return number;
  }
  String ParseString() {
    Expect('"');
    String string(resource_);
    for (;;) {
      const size_t plain = text_.find_first_of("\"\\", at_);
      if (plain == std::string_view::npos) {
        at_ = text_.size();
        Fail("'\"'");
      }
      string.append(text_, at_, plain - at_);
      at_ = plain + 1;
      if (text_[plain] == '"') return string;
      AppendEscaped(string);
    }
  }
  void AppendEscaped(String& string) {
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (const size_t known = kNames.find(c); c != '\0' && known != std::string_view::npos) {
      string.push_back(kMeant[known]);
      ++at_;
      return;
    }
    unsigned code = 0;
    const char* const digits = text_.data() + at_ + 1;
    if (c != 'u' || text_.size() - at_ < 5 ||
        std::from_chars(digits, digits + 4, code, 16).ptr != digits + 4) {
      Fail("an escape");
    }
    at_ += 5;
    if (code < 0x80) {
      string.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      string.push_back(static_cast<char>(0xC0 | code >> 6));
      string.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    } else {  // halves of pairs stay halves
      string.push_back(static_cast<char>(0xE0 | code >> 12));
      string.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
      string.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
  }

  const std::string_view text_;
  std::pmr::memory_resource* const resource_;
  size_t at_ = 0;
};

}  // namespace

Value Parse(std::string_view text, std::pmr::memory_resource* resource) {
  return Parser(text, resource).Document();
}

}  // namespace json
