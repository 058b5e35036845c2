// Vocabulary: numbers of the tokens of texts, for sequences that a network reads.
//
//   const Vocabulary words = Vocabulary::Fit(lines.texts, {.tokens = TokenKind::kWord});
//   model.notes["vocabulary"] = words.ToText();              // saved with the model
//   ...
//   const Vocabulary same = Vocabulary::FromText(loaded.notes.at("vocabulary"));
//
// Tokens are numbered from 2 by how often they were seen, those seen as often by their bytes, so that
// the order of texts does not count. 0 stands for no token (kNone: padding, which a mask or an
// Embedding's mask_index leaves out), 1 for one that is not known (kUnknown).
//
// Threads: const calls from any number at once. Memory: each token twice.
#ifndef TIDEPOOL_NN_DATA_VOCABULARY_H_
#define TIDEPOOL_NN_DATA_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::nn {

// What a text is divided into.
enum class TokenKind : uint8_t {
  kWord,       // what stands between spaces, tabs and line ends
  kCharacter,  // a code point of UTF-8; a byte that is part of none is one by itself
};

// Calls use(token) for each token of `text`, in their order.
void ForEachToken(absl::string_view text, TokenKind kind,
                  absl::FunctionRef<void(absl::string_view token)> use);

// Which tokens have numbers.
struct VocabularyOptions {
  TokenKind tokens = TokenKind::kWord;  // what texts are divided into
  int64_t most_tokens = 50'000;         // the most frequent ones; others are unknown
  int64_t least_count = 1;              // seen less often: unknown
};

class Vocabulary {
 public:
  static constexpr int64_t kNone = 0, kUnknown = 1;         // behind a text's end; any other token
  static constexpr int64_t kMostTokens = int64_t{1} << 24;  // with numbers

  // Throws kInvalidArgument for limits below 1 or most_tokens beyond kMostTokens.
  static Vocabulary Fit(absl::Span<const std::string> texts, const VocabularyOptions& options = {});

  TokenKind tokens() const { return kind_; }  // what texts are divided into
  // Of numbers, kNone and kUnknown among them: an Embedding's entries.
  int64_t size() const { return static_cast<int64_t>(names_.size()) + 2; }
  // kUnknown where it is none of them.
  int64_t NumberOf(absl::string_view token) const;
  // "" of kNone, "?" of kUnknown. Throws kInvalidArgument unless 0 <= number < size().
  absl::string_view TokenOf(int64_t number) const;
  std::vector<int32_t> Encode(absl::string_view text) const;
  // Tokens behind one another, words with a space between; kNone is left out. Throws as TokenOf.
  std::string Decode(absl::Span<const int32_t> numbers) const;

  // One line of ASCII, of any bytes that tokens have.
  std::string ToText() const;
  // Of untrusted text: throws kDataLoss for what ToText did not write.
  static Vocabulary FromText(absl::string_view text);

 private:
  Vocabulary(TokenKind kind, std::vector<std::string> names);

  TokenKind kind_;
  std::vector<std::string> names_;  // of numbers from 2 on
  absl::flat_hash_map<std::string, int32_t> numbers_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_VOCABULARY_H_
