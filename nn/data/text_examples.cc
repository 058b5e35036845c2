#include "tidepool/nn/data/text_examples.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

const TextExamplesOptions& Checked(const TextExamplesOptions& options) {
  if (options.most_tokens < 1 ||
      (options.fixed_length != 0 && options.fixed_length < options.most_tokens)) {
    ThrowInvalidArgument(absl::StrCat("TextExamples: found most_tokens ", options.most_tokens,
                                      " and a fixed length of ", options.fixed_length,
                                      ", expected at least 1, and 0 or as many"));
  }
  return options;
}

}  // namespace

TextExamples TextExamples::Classes(absl::Span<const std::string> texts,
                                   const Vocabulary& vocabulary, std::vector<int64_t> labels,
                                   const TextExamplesOptions& options) {
  if (labels.size() != texts.size()) {
    ThrowInvalidArgument(absl::StrCat("TextExamples: found ", labels.size(), " labels for ",
                                      texts.size(), " texts, expected one for each"));
  }
  return {texts, vocabulary, false, std::move(labels), options};
}

TextExamples TextExamples::NextTokens(absl::Span<const std::string> texts,
                                      const Vocabulary& vocabulary,
                                      const TextExamplesOptions& options) {
  return {texts, vocabulary, true, {}, options};
}

TextExamples::TextExamples(absl::Span<const std::string> texts, const Vocabulary& vocabulary,
                           bool is_next, std::vector<int64_t> labels,
                           const TextExamplesOptions& options)
    : options_(Checked(options)), is_next_(is_next), labels_(std::move(labels)) {
  for (const std::string& text : texts) Add(text, vocabulary);
}

void TextExamples::Add(const std::string& text, const Vocabulary& vocabulary) {
  std::vector<int32_t> tokens = vocabulary.Encode(text);
  if (tokens.empty()) tokens.push_back(static_cast<int32_t>(Vocabulary::kUnknown));
  // The last one has no feature, but is what follows.
  const auto most = static_cast<size_t>(options_.most_tokens) + (is_next_ ? 1 : 0);
  tokens.resize(std::min(tokens.size(), most));
  if (is_next_ && tokens.size() == 1) return;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<int64_t>(tokens_.size()));
}

int64_t TextExamples::LengthOf(int64_t example) const {
  if (example < 0 || example >= count()) {
    ThrowInvalidArgument(
        absl::StrCat("TextExamples: found example ", example, ", expected one of ", count()));
  }
  const auto i = static_cast<size_t>(example);
  return ends_[i] - (i == 0 ? 0 : ends_[i - 1]) - (is_next_ ? 1 : 0);
}

DataSet TextExamples::Make(const ChosenExamples& which, const std::stop_token&) const {
  const int64_t n = which.size();
  int64_t length = std::max<int64_t>(options_.fixed_length, 1);
  for (int64_t i = 0; i < n; ++i) length = std::max(length, LengthOf(which[i]));
  DataSet batch(NDArray({n, length}, DType::kInt64),
                is_next_ ? NDArray({n, length}, DType::kInt64) : NDArray({n}, DType::kInt64));
  batch.features_mask = NDArray({n, length}, DType::kFloat32);
  if (is_next_) batch.labels_mask = NDArray({n, length}, DType::kFloat32);
  if (n == 0) return batch;
  int64_t* features = batch.features.mutable_data<int64_t>();
  int64_t* labels = batch.labels.mutable_data<int64_t>();
  float* mask = batch.features_mask.mutable_data<float>();
  float* labels_mask = is_next_ ? batch.labels_mask.mutable_data<float>() : nullptr;
  for (int64_t i = 0; i < n; ++i, features += length, mask += length) {
    const int64_t example = which[i], tokens = LengthOf(example);
    const int32_t* const begin =
        tokens_.data() + (ends_[static_cast<size_t>(example)] - tokens - (is_next_ ? 1 : 0));
    std::fill(std::copy_n(begin, tokens, features), features + length, Vocabulary::kNone);
    std::fill(std::fill_n(mask, tokens, 1.0f), mask + length, 0.0f);
    if (!is_next_) {
      labels[i] = labels_[static_cast<size_t>(example)];
      continue;
    }
    std::fill(std::copy_n(begin + 1, tokens, labels), labels + length, Vocabulary::kNone);
    std::copy_n(mask, length, labels_mask);
    labels += length;
    labels_mask += length;
  }
  return batch;
}

}  // namespace tidepool::nn
