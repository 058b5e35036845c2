// From NumPy's files to batches.
#include "tidepool/nn/data/npy_examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/example_iterator.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

std::string PathOf(const std::string& name) { return testing::TempDir() + "/" + name; }

// A file as NumPy writes it.
std::string Npy(const std::string& name, const std::string& descr, const std::string& shape,
                const std::string& data, bool fortran = false) {
  std::string header = "{'descr': '" + descr +
                       "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(PathOf(name), std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size() % 256)
       << static_cast<char>(header.size() / 256) << header << data;
  return PathOf(name);
}

TEST(NpyExamples, BatchesAreThoseOfTheArrays) {
  const std::string features = PathOf("features.npy"), labels = PathOf("labels.npy");
  WriteNpy(features, RandomUniform({50, 4, 3}, -1, 1, 1));
  WriteNpy(labels, RandomIntegers({50}, 0, 10, 2));
  for (const bool shuffled : {false, true}) {
    Batching batching{.batch_size = 8};
    if (shuffled) batching.seed = 7;
    ExampleIterator<DataSet> files(std::make_shared<NpyExamples>(NpyFiles{features, labels}),
                                   batching),
        arrays(std::make_shared<ArrayExamples>(ReadNpy(features), ReadNpy(labels)), batching);
    AsyncDataSetIterator ahead(files, {.prefetch = 3, .producers = 2});
    for (int epoch = 0; epoch < 3; ++epoch, ahead.Reset(), arrays.Reset()) {
      while (const std::optional<DataSet> expected = arrays.Next()) {
        const std::optional<DataSet> batch = ahead.Next();
        ASSERT_TRUE(batch.has_value());
        EXPECT_EQ(batch->features.shape(), expected->features.shape());
        EXPECT_EQ(batch->features.ToVector<float>(), expected->features.ToVector<float>());
        EXPECT_EQ(batch->labels.ToVector<int64_t>(), expected->labels.ToVector<int64_t>());
        EXPECT_FALSE(batch->features_mask.is_defined());
      }
      EXPECT_FALSE(ahead.Next().has_value());
    }
  }
}

TEST(NpyExamples, AnyTypeAndByteOrderWithMasks) {
  // Shorts of the other byte order, bools of any value other than 0, one axis.
  const NpyExamples examples(
      {.features = Npy("swapped.npy", ">i4", "(3, 2)",
                       std::string("\0\0\0\1\0\0\0\2\0\0\1\0\0\0\0\4\xff\xff\xff\xff\0\1\0\0", 24)),
       .features_mask = Npy("mask.npy", "|b1", "(3, 2)", std::string("\1\0\2\0\0\1", 6)),
       .labels_mask =
           Npy("weights.npy", "<f4", "(3,)", std::string("\0\0\x80\x3f\0\0\0\0\0\0\0\x40", 12),
               /*fortran=*/true)});
  EXPECT_EQ(examples.count(), 3);
  const std::vector<uint32_t> order = {2, 0, 1};
  const DataSet batch = examples.Make(ChosenExamples(order, 3, 0, 3), {});
  EXPECT_THAT(batch.features.ToVector<int32_t>(), ElementsAre(-1, 65536, 1, 2, 256, 4));
  EXPECT_THAT(batch.features_mask.ToVector<bool>(),
              ElementsAre(false, true, true, false, true, false));
  EXPECT_THAT(batch.labels_mask.ToVector<float>(), ElementsAre(2, 1, 0));
  EXPECT_FALSE(batch.labels.is_defined());
}

TEST(NpyExamples, WhatIsWrongIsToldWithItsFile) {
  const std::string good = PathOf("good.npy"), shorter = PathOf("shorter.npy");
  WriteNpy(good, Ones({10, 3}));
  WriteNpy(shorter, Ones({9}));
  const auto open = [](const NpyFiles& files) { return ErrorOf([&] { NpyExamples{files}; }); };
  EXPECT_THAT(open({}), IsError(StatusCode::kInvalidArgument, {"found no file of features"}));
  EXPECT_THAT(open({PathOf("nowhere.npy")}), IsError(StatusCode::kNotFound, {"nowhere.npy"}));
  EXPECT_THAT(open({good, shorter}),
              IsError(StatusCode::kInvalidArgument,
                      {"shorter.npy: found 9 examples, expected 10 as ", "good.npy has"}));
  EXPECT_THAT(open({Npy("number.npy", "<f4", "()", std::string(4, '\0'))}),
              IsError(StatusCode::kInvalidArgument, {"number.npy: found a single number"}));
  EXPECT_THAT(open({Npy("columns.npy", "<f4", "(2, 2)", std::string(16, '\0'), true)}),
              IsError(StatusCode::kUnimplemented, {"columns.npy", "Fortran order"}));
  EXPECT_THAT(open({Npy("cut.npy", "<f4", "(2, 2)", std::string(15, '\0'))}),
              IsError(StatusCode::kDataLoss, {"cut.npy", "15 bytes of data, expected 16"}));
  EXPECT_THAT(open({Npy("complex.npy", "<c8", "(2,)", std::string(16, '\0'))}),
              IsError(StatusCode::kUnimplemented, {"complex.npy", "c8"}));
  // It becomes shorter while it is read: the batches before are there.
  ExampleIterator<DataSet> batches(std::make_shared<NpyExamples>(NpyFiles{good}),
                                   {.batch_size = 4});
  std::filesystem::resize_file(good, std::filesystem::file_size(good) - 1);
  AsyncDataSetIterator ahead(batches, {.name = "ones"});
  EXPECT_TRUE(ahead.Next().has_value());
  EXPECT_TRUE(ahead.Next().has_value());
  EXPECT_THAT(
      ErrorOf([&] { ahead.Next(); }),
      IsError(StatusCode::kDataLoss, {"ones: batch 2 of epoch 0: ", "good.npy", "examples"}));
}

}  // namespace
}  // namespace tidepool::nn
