// Rows batch by batch against the same file read at once.
#include "tidepool/nn/data/csv_iterator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/fuzzing/heap_watch.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/normalizer.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool::nn {
namespace {

std::string Written(const std::string& content) {
  const std::string path = testing::TempDir() + "/stream.csv";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string Rows(int from, int to) {
  std::string rows;
  for (int i = from; i < to; ++i) {
    rows +=
        std::to_string(i) + ",k" + std::to_string(i * 7 % 5) + "," + std::to_string(i % 3) + "\n";
  }
  return rows;
}

CsvSchema Wanted() {
  CsvSchema schema;
  schema.columns = {{.name = "x"},
                    {.name = "kind", .kind = CsvKind::kCategory},
                    {.name = "y", .kind = CsvKind::kInteger, .is_label = true}};
  return schema;
}

struct Read {
  std::vector<float> features;
  std::vector<int64_t> labels, sizes;
};

Read All(DataSetIterator& batches) {
  Read all;
  while (const std::optional<DataSet> batch = batches.Next()) {
    const std::vector<float> x = batch->features.ToVector<float>();
    const std::vector<int64_t> y = batch->labels.ToVector<int64_t>();
    all.features.insert(all.features.end(), x.begin(), x.end());
    all.labels.insert(all.labels.end(), y.begin(), y.end());
    all.sizes.push_back(batch->size());
  }
  return all;
}

TEST(CsvIterator, BatchesAreTheRowsOfTheFile) {
  for (const bool zipped : {false, true}) {
    const std::string content = "x,kind,y\n" + Rows(0, 103);
    const std::string path = Written(zipped ? Gzip(content) : content);
    const CsvTable table = ReadCsv(path, Wanted());
    const CsvSchema schema = FindCsvCategories(path, Wanted());
    EXPECT_EQ(schema.columns[1].categories, table.schema.columns[1].categories);
    CsvIterator batches(path, schema, {.batch_size = 10});
    for (int epoch = 0; epoch < 3; ++epoch, batches.Reset()) {
      const Read all = All(batches);
      EXPECT_EQ(all.features, table.features.ToVector<float>());
      EXPECT_EQ(all.labels, table.labels.ToVector<int64_t>());
      EXPECT_EQ(all.sizes.size(), 11u);
      EXPECT_EQ(all.sizes.back(), 3);
      EXPECT_EQ(batches.rows(), 103);
      EXPECT_FALSE(batches.Next().has_value());
      if (epoch == 1) {
        batches.Reset();
        batches.Next();  // and on from the middle
      }
    }
    CsvIterator whole(path, schema, {.batch_size = 10, .drops_last = true});
    EXPECT_EQ(All(whole).sizes.size(), 10u);
    AsyncDataSetIterator ahead(batches, {.prefetch = 3, .producers = 2});
    EXPECT_EQ(All(ahead).features, table.features.ToVector<float>());
  }
}

TEST(CsvIterator, RanksShareEachBatch) {
  const std::string path = Written("x,kind,y\n" + Rows(0, 50));
  const CsvSchema schema = FindCsvCategories(path, Wanted());
  for (int rank = 0; rank < 3; ++rank) {
    CsvIterator batches(path, schema, {.batch_size = 4, .rank = rank, .ranks = 3});
    const Read all = All(batches);
    ASSERT_EQ(all.sizes, std::vector<int64_t>(4, 4)) << rank;  // of 12 rows each; 2 are left
    for (size_t i = 0; i < 16; ++i) {
      const size_t row = i / 4 * 12 + static_cast<size_t>(rank) * 4 + i % 4;
      EXPECT_EQ(all.features[i * 6], static_cast<float>(row));
    }
  }
}

TEST(CsvIterator, WhatIsWrongInTheMiddleComesBehindTheBatchesBeforeIt) {
  const std::string path = Written("x,kind,y\n" + Rows(0, 25) + "many,k1,0\n" + Rows(25, 40));
  CsvSchema schema = Wanted();
  schema.columns[1].categories = {"k0", "k1", "k2", "k3", "k4"};
  CsvIterator batches(path, schema, {.batch_size = 10});
  for (int epoch = 0; epoch < 2; ++epoch, batches.Reset()) {
    EXPECT_EQ(batches.Next()->size(), 10);
    EXPECT_EQ(batches.Next()->size(), 10);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(ErrorOf([&] { batches.Next(); }),
                  IsError(absl::StatusCode::kDataLoss, {"line 27, column 1", "\"many\""}));
    }
    EXPECT_EQ(batches.rows(), 20);
  }
  EXPECT_THAT(ErrorOf([&] { FindCsvCategories(path, Wanted()); }),
              IsError(absl::StatusCode::kDataLoss, {"line 27"}));
}

// The pass that was to end is not gone on with.
TEST(CsvIterator, AResetThatFailsIsToldUntilOneSucceeds) {
  const std::string path = Written("x,y\n" + std::string("1,0\n2,1\n3,0\n"));
  CsvSchema schema;
  schema.columns = {{.name = "x"}, {.name = "y", .kind = CsvKind::kInteger, .is_label = true}};
  CsvIterator batches(path, schema, {.batch_size = 1});
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(batches.Next()->features.At<float>({0, 0}), 1);
    std::filesystem::rename(path, path + ".away");
    EXPECT_EQ(ErrorOf([&] { batches.Reset(); }).code(), absl::StatusCode::kNotFound);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(ErrorOf([&] { batches.Next(); }).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(batches.rows(), 0);
    std::filesystem::rename(path + ".away", path);
    batches.Reset();
  }
  Normalizer normalizer = Normalizer::MinMax();
  std::filesystem::rename(path, path + ".away");
  EXPECT_EQ(ErrorOf([&] { normalizer.Fit(batches); }).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(normalizer.is_fitted());
  std::filesystem::rename(path + ".away", path);
  batches.Reset();
  normalizer.Fit(batches);
  EXPECT_TRUE(normalizer.is_fitted());
}

TEST(CsvIterator, WhatCannotBeIsRefused) {
  const std::string path = Written("x,kind,y\n1,k,0\n");
  EXPECT_THAT(ErrorOf([&] { CsvIterator(path, Wanted()); }),
              IsError(absl::StatusCode::kInvalidArgument, {"\"kind\"", "FindCsvCategories"}));
  CsvSchema schema;
  schema.columns = {{.name = "y", .is_label = true}};
  EXPECT_THAT(ErrorOf([&] { CsvIterator(path, schema); }),
              IsError(absl::StatusCode::kInvalidArgument, {"without features"}));
  schema.columns = {{.name = "x"}};
  for (const CsvBatching& batching :
       {CsvBatching{.batch_size = 0}, CsvBatching{.rank = 1}, CsvBatching{.rank = -1},
        CsvBatching{.batch_size = int64_t{1} << 33}}) {
    EXPECT_THAT(ErrorOf([&] { CsvIterator(path, schema, batching); }),
                IsError(absl::StatusCode::kInvalidArgument, {"batch size"}));
  }
  schema.columns = {{.name = "z"}};
  EXPECT_THAT(ErrorOf([&] { CsvIterator(path, schema); }),
              IsError(absl::StatusCode::kDataLoss, {"no column \"z\""}));
  EXPECT_THAT(ErrorOf([&] { CsvIterator(path + ".none", Wanted()); }),
              IsError(absl::StatusCode::kInvalidArgument, {"kind"}));
}

// A file of 16 MiB, of which ReadCsv makes some times as much, is read in less than one MiB.
TEST(CsvIterator, AFileTakesTheMemoryOfABatch) {
  const std::string path = testing::TempDir() + "/large.csv";
  constexpr int kRows = 400'000;
  {
    std::ofstream out(path);
    out << "x,kind,y\n";
    for (int i = 0; i < kRows; ++i)
      out << i << ".25000000000000000000000000,k" << i % 5 << ',' << i % 3 << '\n';
  }
  MemoryTracker::Global().ResetPeaks();
  const HeapWatch heap;
  int64_t rows = 0;
  double sum = 0;
  {
    const CsvSchema schema = FindCsvCategories(path, Wanted());
    CsvIterator batches(path, schema, {.batch_size = 64});
    while (const std::optional<DataSet> batch = batches.Next()) {
      rows += batch->size();
      sum += batch->features.data<float>()[0];
    }
  }
  EXPECT_EQ(rows, kRows);
  EXPECT_GT(sum, 1e6);
  EXPECT_LT(heap.peak_bytes(), int64_t{1} << 20);
  for (const auto& device : MemoryTracker::Global().Snapshot().devices) {
    EXPECT_LT(device.total.peak_bytes, int64_t{1} << 20);  // of the ledger's arrays
  }
}

// What is left would end well within a number.
TEST(CsvIterator, AFileThatBecomesShorterIsTold) {
  CsvSchema schema;
  schema.columns = {{.name = "x"}};
  std::string content = "x\n";
  for (int i = 0; i < 100000; ++i) content += std::to_string(1000000 + i) + "\n";
  const std::string path = Written(content);
  CsvIterator batches(path, schema, {.batch_size = 1000});
  EXPECT_EQ(batches.Next()->size(), 1000);
  std::filesystem::resize_file(path, 400005);
  EXPECT_THAT(
      ErrorOf([&] {
        while (batches.Next().has_value()) {
        }
      }),
      IsError(absl::StatusCode::kDataLoss, {"byte 400005: found the end of the file, expected " +
                                            std::to_string(content.size()) + " bytes"}));
  EXPECT_THROW(batches.Next(), Error);
  // Reading begins anew with what is there.
  batches.Reset();
  int64_t rows = 0;
  while (const std::optional<DataSet> batch = batches.Next()) rows += batch->size();
  EXPECT_EQ(rows, 50001);
}

}  // namespace
}  // namespace tidepool::nn
