// Lines of text, vocabularies and multi-normalizers as models keep them, and arrays of IDX files.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/idx_array.h"
#include "tidepool/nn/data/multi_normalizer.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/nn/data/text_lines.h"
#include "tidepool/nn/data/vocabulary.h"

namespace tidepool::nn {
namespace {

std::vector<std::string> LineFiles() {
  return {"f\tAda\nm\tAlan\n", "\xEF\xBB\xBFm\t\xc3\xa9mile\r\n\r\nf\tx y\tz", "a\t\nb\t\n",
          Gzip("f\tAda\nm\tAlan\n")};
}

void MutateLines(ByteMutator& mutator, std::string& bytes) { mutator.Mutate(bytes); }

void ReadLines(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  TextFormat format = {.has_labels = true, .most_classes = 8, .most_bytes = 1 << 16};
  TextLines lines;
  try {
    lines = ReadTextLines(path, format);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kResourceExhausted)
        << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    throw;
  }
  // Written again, it is the same.
  ASSERT_EQ(lines.texts.size(), lines.labels.size());
  std::string again;
  for (size_t i = 0; i < lines.texts.size(); ++i) {
    absl::StrAppend(&again, lines.classes.at(static_cast<size_t>(lines.labels[i])), "\t",
                    lines.texts[i], "\r\n");
  }
  format.classes = lines.classes;
  const TextLines second = ReadTextLines(FuzzFile(again), format);
  ASSERT_EQ(second.texts, lines.texts);
  ASSERT_EQ(second.labels, lines.labels);
}

std::vector<std::string> Vocabularies() {
  return {"tidepool-vocabulary-1 words 3 a b%20 %c3%a9", "tidepool-vocabulary-1 characters 2 x %25",
          "tidepool-vocabulary-1 words 0", "tidepool-vocabulary-1 characters 1 %ff"};
}

// A word, or a part of one.
void MutateWords(ByteMutator& mutator, std::string& bytes) {
  std::vector<std::string> words = absl::StrSplit(bytes, ' ');
  const auto at = words.begin() + static_cast<ptrdiff_t>(mutator.Below(words.size()));
  switch (mutator.Below(5)) {
    case 0:
      words.insert(at, words[mutator.Below(words.size())]);
      break;
    case 1:
      words.erase(at);
      break;
    case 2:
      *at += absl::StrCat("%", mutator.Number(2));
      break;
    case 3:
      *at = absl::StrCat(mutator.Number(100));
      break;
    default:
      mutator.Mutate(*at);
  }
  bytes = absl::StrJoin(words, " ");
}

void ReadVocabulary(const std::string& bytes) {
  std::optional<Vocabulary> read;
  try {
    read = Vocabulary::FromText(bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("vocabulary: word "), 0u) << error.message();
    throw;
  }
  ASSERT_EQ(absl::StrSplit(read->ToText(), ' ').operator std::vector<std::string>().size(),
            absl::StrSplit(bytes, ' ').operator std::vector<std::string>().size());
  for (int64_t i = 2; i < read->size(); ++i) ASSERT_EQ(read->NumberOf(read->TokenOf(i)), i);
}

std::vector<std::string> MultiNormalizers() {
  return {MultiNormalizer({Normalizer::ImageScale(), std::nullopt}).ToText(),
          "tidepool-multi-normalizer-1 1 1;tidepool-normalizer-1 standardize 0 1 features 1 1 2 0;"
          "none",
          "tidepool-multi-normalizer-1 0 0"};
}

void ReadMultiNormalizer(const std::string& bytes) {
  std::string text;
  try {
    text = MultiNormalizer::FromText(bytes).ToText();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("multi-normalizer: "), 0u) << error.message();
    throw;
  }
  ASSERT_EQ(MultiNormalizer::FromText(text).ToText(), text);
}

std::vector<std::string> IdxArrays() {
  return {Idx({2, 1}, "ab"), Idx({1, 1, 1, 2}, std::string(16, 'd'), 0x0E),
          Idx({3}, std::string(6, 's'), 0x0B), Gzip(Idx({2}, std::string(8, 'f'), 0x0D))};
}

void ReadArray(const std::string& bytes) {
  constexpr uint64_t kMost = 4096;
  const std::string path = FuzzFile(bytes);
  NDArray array;
  try {
    array = ReadIdxArray(path, kMost);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kResourceExhausted ||
                error.code() == absl::StatusCode::kUnimplemented)
        << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    throw;
  }
  ASSERT_LE(static_cast<uint64_t>(array.NumElements()) * DTypeBytes(array.dtype()), kMost);
}

TIDEPOOL_FUZZ_TARGET(TextLines, {.corpus = &LineFiles,
                                 .mutate = &MutateLines,
                                 .run = &ReadLines,
                                 .constant_bytes = size_t{1} << 20,
                                 .cases = 10000});
TIDEPOOL_FUZZ_TARGET(Vocabulary, {.corpus = &Vocabularies,
                                  .mutate = &MutateWords,
                                  .run = &ReadVocabulary,
                                  .cases = 10000});
TIDEPOOL_FUZZ_TARGET(MultiNormalizer, {.corpus = &MultiNormalizers,
                                       .mutate = &MutateWords,
                                       .run = &ReadMultiNormalizer,
                                       .cases = 5000});
TIDEPOOL_FUZZ_TARGET(IdxArray, {.corpus = &IdxArrays,
                                .mutate = &MutateLines,
                                .run = &ReadArray,
                                .constant_bytes = size_t{1} << 20,
                                .cases = 10000});

}  // namespace
}  // namespace tidepool::nn
