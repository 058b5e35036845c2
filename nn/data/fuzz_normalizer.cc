// Normalizers as models keep them in their notes.
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/normalizer.h"

namespace tidepool::nn {
namespace {

std::vector<std::string> Normalizers() {
  return {Normalizer::ImageScale().ToText(), Normalizer::ImageScale(-1, 1, 15).ToText(),
          "tidepool-normalizer-1 standardize 0 1 features 2 0.5 -2 1 0.25 0 0",
          "tidepool-normalizer-1 min_max 0.1 0.7 features 1 3 2e-3 0.1 labels 2 0 1 1 1 0 0",
          "tidepool-normalizer-1 min_max 0 1 features 1 0 0 0"};
}

// A word.
void MutateNormalizer(ByteMutator& mutator, std::string& bytes) {
  std::vector<std::string> words = absl::StrSplit(bytes, ' ');
  const auto at = words.begin() + static_cast<ptrdiff_t>(mutator.Below(words.size()));
  switch (mutator.Below(4)) {
    case 0:
      words.insert(at, words[mutator.Below(words.size())]);
      break;
    case 1:
      words.erase(at);
      break;
    default:
      *at = absl::StrCat(mutator.Below(4) == 0 ? "-" : "", mutator.Number(100));
  }
  bytes = absl::StrJoin(words, " ");
}

void ReadNormalizer(const std::string& bytes) {
  std::string text;
  try {
    text = Normalizer::FromText(bytes).ToText();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("normalizer: word "), 0u) << error.message();
    throw;
  }
  const std::vector<absl::string_view> read = absl::StrSplit(bytes, ' ');
  const std::vector<absl::string_view> written = absl::StrSplit(text, ' ');
  ASSERT_EQ(read.size(), written.size()) << text;
  for (size_t i = 0; i < read.size(); ++i) {
    double from = 0, to = 0;
    if (absl::SimpleAtod(read[i], &from) && absl::SimpleAtod(written[i], &to)) {
      ASSERT_EQ(from, to) << i;
    } else {
      ASSERT_EQ(read[i], written[i]) << i;
    }
  }
  ASSERT_EQ(Normalizer::FromText(text).ToText(), text);
}

TIDEPOOL_FUZZ_TARGET(Normalizer, {.corpus = &Normalizers,
                                  .mutate = &MutateNormalizer,
                                  .run = &ReadNormalizer,
                                  .cases = 10000});

}  // namespace
}  // namespace tidepool::nn
