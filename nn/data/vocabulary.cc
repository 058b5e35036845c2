#include "tidepool/nn/data/vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/io/json_writer.h"

namespace tidepool::nn {
namespace {

constexpr absl::string_view kFormat = "tidepool-vocabulary-1";
constexpr absl::string_view kKinds[] = {"words", "characters"};
constexpr absl::string_view kBlanks = " \t\r\n";

// Letters and the like as they are, all else as %20: one word of ASCII.
std::string Escaped(absl::string_view token) {
  std::string text;
  for (const char c : token) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '%') {
      text += c;
    } else {
      absl::StrAppend(&text, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return text;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// False where Escaped has not written it.
bool Unescape(absl::string_view text, std::string& token) {
  token.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      token += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    token += static_cast<char>(16 * high + low);
    i += 2;
  }
  return Escaped(token) == text;
}

}  // namespace

void ForEachToken(absl::string_view text, TokenKind kind,
                  absl::FunctionRef<void(absl::string_view token)> use) {
  while (!text.empty()) {
    size_t bytes;
    if (kind == TokenKind::kCharacter) {
      bytes = std::max<size_t>(CodePointBytes(text), 1);
    } else {
      const size_t begin = text.find_first_not_of(kBlanks);
      if (begin == text.npos) return;
      text.remove_prefix(begin);
      bytes = std::min(text.find_first_of(kBlanks), text.size());
    }
    use(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

Vocabulary::Vocabulary(TokenKind kind, std::vector<std::string> names)
    : kind_(kind), names_(std::move(names)) {
  numbers_.reserve(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    numbers_.emplace(names_[i], static_cast<int32_t>(i) + 2);
  }
}

Vocabulary Vocabulary::Fit(absl::Span<const std::string> texts, const VocabularyOptions& options) {
  if (options.most_tokens < 1 || options.most_tokens > kMostTokens || options.least_count < 1) {
    ThrowInvalidArgument(absl::StrCat("vocabulary: found most_tokens ", options.most_tokens,
                                      " and least_count ", options.least_count,
                                      ", expected at least 1, of tokens at most ", kMostTokens));
  }
  absl::flat_hash_map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    ForEachToken(text, options.tokens, [&](absl::string_view token) { ++counts[token]; });
  }
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [token, count] : counts) {
    if (count >= options.least_count) order.emplace_back(-count, token);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<size_t>(options.most_tokens)));
  std::vector<std::string> names;
  names.reserve(order.size());
  for (auto& [count, token] : order) names.push_back(std::move(token));
  return {options.tokens, std::move(names)};
}

int64_t Vocabulary::NumberOf(absl::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? kUnknown : found->second;
}

absl::string_view Vocabulary::TokenOf(int64_t number) const {
  if (number < 0 || number >= size()) {
    ThrowInvalidArgument(
        absl::StrCat("vocabulary: found number ", number, ", expected one of ", size()));
  }
  if (number == kNone) return "";
  if (number == kUnknown) return "?";
  return names_[static_cast<size_t>(number) - 2];
}

std::vector<int32_t> Vocabulary::Encode(absl::string_view text) const {
  std::vector<int32_t> numbers;
  ForEachToken(text, kind_, [&](absl::string_view token) {
    numbers.push_back(static_cast<int32_t>(NumberOf(token)));
  });
  return numbers;
}

std::string Vocabulary::Decode(absl::Span<const int32_t> numbers) const {
  std::string text;
  for (const int32_t number : numbers) {
    if (number == kNone) continue;
    if (kind_ == TokenKind::kWord && !text.empty()) text += ' ';
    absl::StrAppend(&text, TokenOf(number));
  }
  return text;
}

std::string Vocabulary::ToText() const {
  std::string text =
      absl::StrCat(kFormat, " ", kKinds[static_cast<size_t>(kind_)], " ", names_.size());
  for (const std::string& name : names_) absl::StrAppend(&text, " ", Escaped(name));
  return text;
}

Vocabulary Vocabulary::FromText(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  size_t at = 0;
  const auto refuse = [&](absl::string_view expected) {
    const std::string found =
        at < words.size() ? absl::StrCat("\"", OneLine(std::string(words[at].substr(0, 40))), "\"")
                          : "the end";
    ThrowDataLoss(
        absl::StrCat("vocabulary: word ", at, ": found ", found, ", expected ", expected));
  };
  if (words[0] != kFormat) refuse(kFormat);
  at = 1;
  const auto kind = at < words.size() ? std::find(std::begin(kKinds), std::end(kKinds), words[at])
                                      : std::end(kKinds);
  if (kind == std::end(kKinds)) refuse("words or characters");
  at = 2;
  uint64_t count = 0;
  if (at >= words.size() || !absl::SimpleAtoi(words[at], &count) ||
      count > static_cast<uint64_t>(kMostTokens)) {
    refuse("how many tokens follow");
  }
  const auto tokens = static_cast<TokenKind>(kind - std::begin(kKinds));
  std::vector<std::string> names;
  std::string name;
  for (at = 3; at < words.size(); ++at) {
    if (names.size() == count) refuse("the end");
    // One token, as texts have it.
    size_t found = 0;
    if (Unescape(words[at], name)) {
      ForEachToken(name, tokens,
                   [&](absl::string_view token) { found += token.size() == name.size() ? 1 : 2; });
    }
    if (found != 1) refuse("a token");
    names.push_back(name);
  }
  if (names.size() != count) refuse(absl::StrCat(count, " tokens"));
  Vocabulary vocabulary(tokens, std::move(names));
  if (vocabulary.numbers_.size() != count) {
    at = 2;
    refuse("tokens that are there once each");
  }
  return vocabulary;
}

}  // namespace tidepool::nn
