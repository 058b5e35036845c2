// Texts as examples: batches of numbers of tokens, filled up to the longest text of the batch, with
// masks that say where a text is.
//
//   const TextLines lines = ReadTextLines("names.tsv", {.has_labels = true});
//   const Vocabulary letters = Vocabulary::Fit(lines.texts, {.tokens = TokenKind::kCharacter});
//   ExampleIterator<DataSet> batches(
//       std::make_shared<TextExamples>(TextExamples::Classes(lines.texts, letters, lines.labels)),
//       {.batch_size = 32});
//   AsyncDataSetIterator ahead(batches, {.prefetch = 4});      // slots grow where batches do
//
// Features i64 [n, length] and their mask f32 [n, length], 1 where a token is and 0 behind a text's
// end, where the number is Vocabulary::kNone.
//
//   Classes      labels i64 [n], no mask of them
//   NextTokens   labels i64 [n, length]: the token that follows each, with the features' mask; of a
//                text of k tokens k - 1 are features. Texts of one token are left out.
//
// An empty text is one unknown token: a sequence has at least one step. Longer ones than most_tokens
// are cut behind it. A network whose input has a length takes batches of it alone: fixed_length.
//
// Memory: 4 bytes a token. Threads: as Examples.
#ifndef TIDEPOOL_NN_DATA_TEXT_EXAMPLES_H_
#define TIDEPOOL_NN_DATA_TEXT_EXAMPLES_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/vocabulary.h"

namespace tidepool::nn {

struct TextExamplesOptions {
  int64_t most_tokens = 512;  // of a text
  int64_t fixed_length = 0;   // of all batches; 0: of each its longest text's
};

class TextExamples final : public Examples<DataSet> {
 public:
  // Throw kInvalidArgument for numbers of texts and labels that differ, a limit below 1 and a fixed
  // length below most_tokens.
  static TextExamples Classes(absl::Span<const std::string> texts, const Vocabulary& vocabulary,
                              std::vector<int64_t> labels, const TextExamplesOptions& options = {});
  static TextExamples NextTokens(absl::Span<const std::string> texts, const Vocabulary& vocabulary,
                                 const TextExamplesOptions& options = {});

  int64_t count() const override { return static_cast<int64_t>(ends_.size()); }
  DataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;
  // Tokens of an example's features. Throws kInvalidArgument unless 0 <= example < count().
  int64_t LengthOf(int64_t example) const;

 private:
  TextExamples(absl::Span<const std::string> texts, const Vocabulary& vocabulary, bool is_next,
               std::vector<int64_t> labels, const TextExamplesOptions& options);
  void Add(const std::string& text, const Vocabulary& vocabulary);

  TextExamplesOptions options_;
  bool is_next_;                 // next tokens
  std::vector<int32_t> tokens_;  // of all texts
  std::vector<int64_t> ends_;    // of each text in them
  std::vector<int64_t> labels_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_TEXT_EXAMPLES_H_
