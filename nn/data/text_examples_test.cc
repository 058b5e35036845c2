// Lines, vocabularies and batches of texts against what a person would write down.
#include "tidepool/nn/data/text_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/nn/data/text_lines.h"
#include "tidepool/nn/data/vocabulary.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Written(const std::string& content) {
  const std::string path = testing::TempDir() + "/lines";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(TextLines, LabelsTextsAndClasses) {
  const TextLines lines =
      ReadTextLines(Written("\xEF\xBB\xBFm\tAlan T.\r\n\nf\tAda\tL\nm\t\n"), {.has_labels = true});
  EXPECT_THAT(lines.texts, ElementsAre("Alan T.", "Ada\tL", ""));
  EXPECT_THAT(lines.classes, ElementsAre("f", "m"));
  EXPECT_THAT(lines.labels, ElementsAre(1, 0, 1));
  for (const std::string& content : {std::string("one\ntwo"), Gzip("one\r\ntwo\r\n")}) {
    EXPECT_THAT(ReadTextLines(Written(content)).texts, ElementsAre("one", "two"));
  }
  EXPECT_TRUE(ReadTextLines(Written("")).texts.empty());
  // By the classes of another file; longer than a piece that is read.
  const std::string many(200'000, 'x');
  const TextLines others =
      ReadTextLines(Written("m," + many + "\n"),
                    {.has_labels = true, .separator = ',', .classes = {"f", "m", "x"}});
  EXPECT_THAT(others.labels, ElementsAre(1));
  EXPECT_EQ(others.texts[0], many);
  EXPECT_EQ(others.classes.size(), 3u);
}

TEST(TextLines, WhatIsWrongIsNamedWithItsPlace) {
  const auto error = [](const std::string& content, const TextFormat& format) {
    return ErrorOf([&] { ReadTextLines(Written(content), format); });
  };
  EXPECT_THAT(error("good\nb\xff\n", {}),
              IsError(absl::StatusCode::kDataLoss,
                      {"line 2, column 2: found byte 0xff, expected text in UTF-8"}));
  EXPECT_THAT(error(std::string("a\0b", 3), {}),
              IsError(absl::StatusCode::kDataLoss, {"column 2: found byte 0x00"}));
  EXPECT_THAT(
      error("f\tAda\nAlan\n", {.has_labels = true}),
      IsError(absl::StatusCode::kDataLoss, {"line 2, column 5: found the end of the line"}));
  EXPECT_THAT(error("f\tAda\n\tAlan\n", {.has_labels = true}),
              IsError(absl::StatusCode::kDataLoss, {"line 2, column 1: found no label"}));
  EXPECT_THAT(ReadTextLines(Written("\tAda\n"), {.has_labels = true, .classes = {"f", ""}}).labels,
              ElementsAre(1));
  EXPECT_THAT(error("x\tAda", {.has_labels = true, .classes = {"f", "m"}}),
              IsError(absl::StatusCode::kDataLoss,
                      {"line 1, column 1: found class \"x\", expected one of 2 classes"}));
  EXPECT_THAT(error("a\tx\nb\tx\nc\tx\n", {.has_labels = true, .most_classes = 2}),
              IsError(absl::StatusCode::kResourceExhausted, {"line 3: found class \"c\""}));
  EXPECT_THAT(
      error("four\nlines", {.most_line_bytes = 4}),
      IsError(absl::StatusCode::kResourceExhausted, {"line 2: found more than 4 bytes of a line"}));
  EXPECT_THAT(error("four\nlines", {.most_bytes = 9}),
              IsError(absl::StatusCode::kResourceExhausted, {"9 bytes"}));
  EXPECT_THAT(error("", {.separator = '\n'}),
              IsError(absl::StatusCode::kInvalidArgument, {"separator 10"}));
  EXPECT_THAT(error("", {.classes = {"a", "a"}}),
              IsError(absl::StatusCode::kInvalidArgument, {"\"a\" twice"}));
  EXPECT_THAT(ErrorOf([] { ReadTextLines(testing::TempDir() + "/none"); }),
              IsError(absl::StatusCode::kNotFound, {"none"}));
}

TEST(TextLines, LinesThatEndWithCrAloneAreToldApart) {
  const auto error = [](const std::string& content, const TextFormat& format = {}) {
    return ErrorOf([&] { ReadTextLines(Written(content), format); });
  };
  // As old Macintosh programs write them: the whole file is one line, whose first end is told.
  for (const std::string& content : {std::string("Ada\rAlan\r"), Gzip("Ada\rAlan\r")}) {
    EXPECT_THAT(error(content),
                IsError(absl::StatusCode::kDataLoss,
                        {"line 1, column 4: found CR without LF behind it, expected lines that end "
                         "with LF or CR LF"}));
  }
  EXPECT_THAT(error("one\ntw\ro\nthree"),
              IsError(absl::StatusCode::kDataLoss, {"line 2, column 3: found CR"}));
  EXPECT_THAT(error("one\n\rtwo\n"),
              IsError(absl::StatusCode::kDataLoss, {"line 2, column 1: found CR"}));
  // Also where lines have labels, and where all lines are more than one may have.
  EXPECT_THAT(error("f\tAda\rm\tAlan\r", {.has_labels = true}),
              IsError(absl::StatusCode::kDataLoss, {"line 1, column 6: found CR"}));
  for (const char* const mark : {"", "\xEF\xBB\xBF"}) {
    EXPECT_THAT(error(std::string(mark) + "one\rtwo\rthree", {.most_line_bytes = 4}),
                IsError(absl::StatusCode::kDataLoss, {"line 1, column 4: found CR"}));
  }
  // Line ends may have it twice, and the file may end behind it.
  EXPECT_THAT(ReadTextLines(Written("one\r\r\n\r\r\ntwo\r")).texts, ElementsAre("one", "two"));
  EXPECT_THAT(ReadTextLines(Written("four\r\n"), {.most_line_bytes = 5}).texts,
              ElementsAre("four"));
}

TEST(Vocabulary, TokensAreNumberedByHowOftenTheyAreThere) {
  const std::vector<std::string> texts = {"the cat  the dog", "a\tcat\n"};
  const Vocabulary words = Vocabulary::Fit(texts);
  EXPECT_EQ(words.size(), 6);
  EXPECT_THAT(words.Encode("the cat a dog bird"), ElementsAre(3, 2, 4, 5, 1));
  EXPECT_THAT(words.Encode(" "), ElementsAre());
  EXPECT_EQ(words.Decode({3, 2, 0, 1}), "the cat ?");
  EXPECT_EQ(Vocabulary::Fit(texts, {.most_tokens = 1}).size(), 3);
  EXPECT_EQ(Vocabulary::Fit(texts, {.least_count = 2}).size(), 4);
  const Vocabulary letters =
      Vocabulary::Fit({"na\xc3\xafve %", "a\xff"}, {.tokens = TokenKind::kCharacter});
  EXPECT_THAT(letters.Encode("a\xc3\xaf\xff"), ElementsAre(2, 8, 9));
  EXPECT_EQ(letters.Decode(letters.Encode("na\xc3\xafve %")), "na\xc3\xafve %");
  EXPECT_THAT(ErrorOf([&] { words.TokenOf(6); }),
              IsError(absl::StatusCode::kInvalidArgument, {"number 6, expected one of 6"}));
  EXPECT_THAT(ErrorOf([&] { Vocabulary::Fit(texts, {.most_tokens = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"most_tokens 0"}));
}

TEST(Vocabulary, ComesBackFromItsText) {
  const std::vector<std::string> texts = {"a b%20 \xc3\xaf \x01 ~", " x"};
  for (const TokenKind kind : {TokenKind::kWord, TokenKind::kCharacter}) {
    const Vocabulary before = Vocabulary::Fit(texts, {.tokens = kind});
    const std::string text = before.ToText();
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~');
    const Vocabulary after = Vocabulary::FromText(text);
    EXPECT_EQ(after.ToText(), text);
    EXPECT_EQ(after.Encode(texts[0]), before.Encode(texts[0]));
    EXPECT_EQ(after.tokens(), kind);
  }
  for (const char* const bad :
       {"", "x", "tidepool-vocabulary-1", "tidepool-vocabulary-1 words",
        "tidepool-vocabulary-1 letters 0", "tidepool-vocabulary-1 words 2 a",
        "tidepool-vocabulary-1 words 1 a b", "tidepool-vocabulary-1 words 2 a a",
        "tidepool-vocabulary-1 words 1 ", "tidepool-vocabulary-1 words 1 %2",
        "tidepool-vocabulary-1 words 1 %zz", "tidepool-vocabulary-1 words 1 %41",
        "tidepool-vocabulary-1 words 1 a%20b", "tidepool-vocabulary-1 characters 1 ab",
        "tidepool-vocabulary-1 words 99999999999 a", "tidepool-vocabulary-1 words 1 a%2F"}) {
    EXPECT_THAT(ErrorOf([&] { Vocabulary::FromText(bad); }),
                IsError(absl::StatusCode::kDataLoss, {"vocabulary: word"}))
        << bad;
  }
}

const std::vector<std::string> kTexts = {"ab", "abcd", "", "b"};

std::optional<DataSet> Only(const TextExamples& examples, int64_t begin, int64_t count) {
  return examples.Make(ChosenExamples({}, examples.count(), begin, count), {});
}

TEST(TextExamples, ClassesArePaddedAndMasked) {
  const Vocabulary letters = Vocabulary::Fit(kTexts, {.tokens = TokenKind::kCharacter});  // b a c d
  const TextExamples examples =
      TextExamples::Classes(kTexts, letters, {7, 8, 9, 10}, {.most_tokens = 3});
  EXPECT_EQ(examples.count(), 4);
  const DataSet batch = *Only(examples, 0, 4);
  EXPECT_EQ(batch.features.shape(), Shape({4, 3}));
  EXPECT_THAT(batch.features.ToVector<int64_t>(), ElementsAre(3, 2, 0, 3, 2, 4, 1, 0, 0, 2, 0, 0));
  EXPECT_THAT(batch.features_mask.ToVector<float>(),
              ElementsAre(1, 1, 0, 1, 1, 1, 1, 0, 0, 1, 0, 0));
  EXPECT_THAT(batch.labels.ToVector<int64_t>(), ElementsAre(7, 8, 9, 10));
  EXPECT_FALSE(batch.labels_mask.is_defined());
  EXPECT_EQ(Only(examples, 2, 2)->features.shape(), Shape({2, 1}));
  EXPECT_EQ(examples.LengthOf(1), 3);
  for (const int64_t other : {int64_t{-1}, int64_t{4}, INT64_MAX}) {
    EXPECT_THAT(ErrorOf([&] { examples.LengthOf(other); }),
                IsError(absl::StatusCode::kInvalidArgument,
                        {"TextExamples: found example", "expected one of 4"}));
  }
  const TextExamples fixed =
      TextExamples::Classes(kTexts, letters, {7, 8, 9, 10}, {.most_tokens = 3, .fixed_length = 5});
  EXPECT_EQ(Only(fixed, 3, 1)->features.shape(), Shape({1, 5}));
}

TEST(TextExamples, NextTokensAreTheSameOneFurther) {
  const Vocabulary letters = Vocabulary::Fit(kTexts, {.tokens = TokenKind::kCharacter});
  const TextExamples examples = TextExamples::NextTokens(kTexts, letters, {.most_tokens = 2});
  EXPECT_EQ(examples.count(), 2);  // of one token nothing follows
  const DataSet batch = *Only(examples, 0, 2);
  EXPECT_THAT(batch.features.ToVector<int64_t>(), ElementsAre(3, 0, 3, 2));
  EXPECT_THAT(batch.labels.ToVector<int64_t>(), ElementsAre(2, 0, 2, 4));
  EXPECT_THAT(batch.labels_mask.ToVector<float>(), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(batch.features_mask.ToVector<float>(), ElementsAre(1, 0, 1, 1));
}

TEST(TextExamples, WhatCannotBeIsRefused) {
  const Vocabulary words = Vocabulary::Fit(kTexts);
  EXPECT_THAT(ErrorOf([&] { TextExamples::Classes(kTexts, words, {1}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"1 labels for 4 texts"}));
  EXPECT_THAT(ErrorOf([&] { TextExamples::NextTokens(kTexts, words, {.most_tokens = 0}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"most_tokens 0"}));
  EXPECT_THAT(ErrorOf([&] {
                TextExamples::NextTokens(kTexts, words, {.most_tokens = 4, .fixed_length = 3});
              }),
              IsError(absl::StatusCode::kInvalidArgument, {"fixed length of 3"}));
}

// Batches of lengths that vary and grow, ahead and in order, are those made without a ring, in slots.
TEST(TextExamples, LengthsThatVaryRegrowTheRing) {
  std::vector<std::string> texts;
  for (int i = 0; i < 200; ++i)
    texts.emplace_back(static_cast<size_t>(1 + i * i % 97 + (i > 100 ? 200 : 0)), 'a');
  const Vocabulary letters = Vocabulary::Fit(texts, {.tokens = TokenKind::kCharacter});
  const auto examples = std::make_shared<TextExamples>(
      TextExamples::Classes(texts, letters, std::vector<int64_t>(200, 1)));
  ExampleIterator<DataSet> batches(examples, {.batch_size = 8}), plain(examples, {.batch_size = 8});
  AsyncDataSetIterator ahead(batches, {.prefetch = 3, .producers = 2});
  // Which slot meets the longest batch is by chance, so some epochs may pass until each has.
  bool all_fit = false;
  for (int epoch = 0; epoch < 16 && !all_fit; ++epoch, ahead.Reset(), plain.Reset()) {
    const uint64_t spills = ahead.ring_stats().spills;
    while (const std::optional<DataSet> expected = plain.Next()) {
      const std::optional<DataSet> found = ahead.Next();
      ASSERT_TRUE(found.has_value());
      EXPECT_TRUE(found->features.IsAttached());
      ASSERT_EQ(found->features.shape(), expected->features.shape());
      EXPECT_EQ(found->features.ToVector<int64_t>(), expected->features.ToVector<int64_t>());
      EXPECT_EQ(found->features_mask.ToVector<float>(), expected->features_mask.ToVector<float>());
    }
    EXPECT_FALSE(ahead.Next().has_value());
    all_fit = ahead.ring_stats().spills == spills;
  }
  EXPECT_GT(ahead.ring_stats().slot_bytes, size_t{8 * 290 * 8});
  EXPECT_TRUE(all_fit);
}

TEST(TextExamples, ANetworkLearnsThemAndTheVocabularyIsSavedWithIt) {
  std::vector<std::string> texts;
  std::vector<int64_t> labels;
  for (int i = 0; i < 64; ++i) {
    texts.push_back(std::string(static_cast<size_t>(1 + i % 7), 'x') + (i % 2 == 0 ? "a" : "b"));
    labels.push_back(i % 2);
  }
  const Vocabulary letters = Vocabulary::Fit(texts, {.tokens = TokenKind::kCharacter});
  ExampleIterator<DataSet> batches(
      std::make_shared<TextExamples>(
          TextExamples::Classes(texts, letters, labels, {.most_tokens = 8, .fixed_length = 8})),
      {.batch_size = 16, .seed = 1});
  Model model("endings", 2,
              std::make_unique<Network>(
                  NetworkConfig::Sequential(
                      InputConfig{"text", {8}, DType::kInt64},
                      {Embedding(letters.size(), 8, {.mask_index = Vocabulary::kNone}),
                       Lstm(16, {.output = RecurrentOutput::kLast}), Dense(2)}),
                  NetworkOptions{.seed = 1}));
  model.notes["vocabulary"] = letters.ToText();
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.02;
  Trainer trainer(model, adam);
  double loss = 1;
  for (int epoch = 0; epoch < 60; ++epoch, batches.Reset()) {
    while (std::optional<DataSet> batch = batches.Next()) {
      loss = trainer.Step([&] { return std::move(*batch); });
    }
  }
  EXPECT_LT(loss, 0.1);  // the last letter is behind the padding for most of them
  SaveModel(model, testing::TempDir() + "/endings");
  const Model loaded = LoadModel(testing::TempDir() + "/endings");
  const Vocabulary same = Vocabulary::FromText(loaded.notes.at("vocabulary"));
  EXPECT_EQ(same.Encode("xab?"), letters.Encode("xab?"));
}

}  // namespace
}  // namespace tidepool::nn
