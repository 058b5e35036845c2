// CSV files.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/csv_file.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

std::vector<std::string> CsvFiles() {
  std::vector<std::string> files = {"a,b,c,d\n1,x,,0\n-2.5e3,y,7,1\n",
                                    "d,c,b,a,e\r\n2,0.5,\"y, or \"\"z\"\"\",+1,\"two\nlines\"\r\n",
                                    "a,b,c,d\n",
                                    "\xEF\xBB\xBF"
                                    "b,a,d,c\nx,1,-9,NA\n\ny,2,3,4"};
  std::string many = "a,b,c,d\n";
  for (int i = 0; i < 40; ++i)
    many += std::to_string(i) + ",k" + std::to_string(i) + ",1," + std::to_string(i % 3) + "\n";
  files.push_back(many);
  files.push_back(Gzip(files[0]));
  return files;
}

// A field, a line or a quote.
void MutateCsv(ByteMutator& mutator, std::string& bytes) {
  if (bytes.substr(0, 2) == "\x1f\x8b") return mutator.Mutate(bytes);
  std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
  std::string& line = lines[mutator.Below(lines.size())];
  std::vector<std::string> fields = absl::StrSplit(line, ',');
  std::string& field = fields[mutator.Below(fields.size())];
  static constexpr const char* kWords[] = {"",      "x",    "NA", "nan", "inf",
                                           "1e999", "0x10", " 1", "\"\""};
  switch (mutator.Below(7)) {
    case 0:
      fields.back() += absl::StrCat("\n", line);
      break;
    case 1:
      fields = {lines[mutator.Below(lines.size())]};
      break;
    case 2:
      field = absl::StrCat("\"", field, mutator.Below(2) == 0 ? "\n" : ",", "\"");
      break;
    case 3:
      field.insert(mutator.Below(field.size() + 1), "\"");
      break;
    case 4:
      fields.insert(fields.begin(), mutator.Below(8) == 0 ? mutator.Below(80) : 1, "1");
      break;
    case 5:
      field = kWords[mutator.Below(std::size(kWords))];
      break;
    default:
      field = absl::StrCat(mutator.Below(4) == 0 ? "-" : "", mutator.Number(10));
  }
  line = absl::StrJoin(fields, ",");
  bytes = absl::StrJoin(lines, "\n");
}

void ReadCsvFile(const std::string& bytes) {
  CsvSchema schema;
  schema.columns = {{.name = "a"},
                    {.name = "b", .kind = CsvKind::kCategory},
                    {.name = "c", .if_missing = 0.25},
                    {.name = "d", .kind = CsvKind::kInteger, .is_label = true}};
  schema.format = {.max_bytes = size_t{1} << 16, .max_record_bytes = 1024, .max_fields = 64};
  schema.max_categories = 50;
  schema.max_values = int64_t{1} << 14;
  const std::string path = FuzzFile(bytes);
  CsvTable table;
  try {
    table = ReadCsv(path, schema);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kResourceExhausted)
        << error.message();
    EXPECT_EQ(error.message().find(path + ": "), 0u) << error.message();
    throw;
  }
  const auto categories = static_cast<int64_t>(table.schema.columns[1].categories.size());
  ASSERT_EQ(table.features.dim(1), 2 + categories);
  ASSERT_EQ(table.labels.dim(0), table.features.dim(0));
  ASSERT_EQ(table.feature_names.size(), static_cast<size_t>(2 + categories));
  const std::vector<float> values = table.features.ToVector<float>();
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(2 + categories)) {
    ASSERT_TRUE(std::isfinite(values[row]));
    float ones = 0;
    for (int64_t i = 0; i < categories; ++i) ones += values[row + 1 + static_cast<size_t>(i)];
    ASSERT_EQ(ones, 1);  // each row has one of them
  }
  // What it found reads the same file to the same numbers.
  const CsvTable again = ReadCsv(path, table.schema);
  ASSERT_EQ(again.features.ToVector<float>(), values);
  ASSERT_EQ(again.labels.ToVector<int64_t>(), table.labels.ToVector<int64_t>());
}

TIDEPOOL_FUZZ_TARGET(Csv, {.corpus = &CsvFiles,
                           .mutate = &MutateCsv,
                           .run = &ReadCsvFile,
                           .constant_bytes = size_t{2} << 20,
                           .cases = 20000});

}  // namespace
}  // namespace tidepool
