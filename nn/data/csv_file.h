// Numbers and categories of a CSV file, by a schema, as arrays to train on.
//
//   CsvSchema schema;
//   schema.columns = {{.name = "area"},
//                     {.name = "rooms", .if_missing = 0},
//                     {.name = "kind", .kind = CsvKind::kCategory,
//                      .categories = {"flat", "house"}},
//                     {.name = "sold", .kind = CsvKind::kInteger, .is_label = true}};
//   CsvTable houses = ReadCsv("houses.csv", schema);                     // .csv or .csv.gz
//   ArrayExamples examples(houses.features, houses.labels);
//
// With a header line columns are found by their names, and those that the schema does not name are
// passed over; without one the schema's are the file's, in order. A category among features is as
// many numbers, one of which is 1.
//
// Blanks around names of the header and categories do not count, as in lines written by hand
// ("area, rooms"), but where the field stands in quotes: " x" is another category than x.
//
// What a file's categories are is part of what a network was trained on: ReadCsv returns the schema
// with those that it found, by which other files are to be read.
//
// Errors: kDataLoss naming file, line, column with its name, found and expected: a field that is no
// number or none of the categories, a missing value where none is foreseen, another number of
// fields than the header or schema has; what csv_records.h says. kInvalidArgument for a schema that
// cannot be. kResourceExhausted for more than the limits. Memory: the arrays, twice for a moment.
// Threads: pure functions.
#ifndef TIDEPOOL_NN_DATA_CSV_FILE_H_
#define TIDEPOOL_NN_DATA_CSV_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/csv_records.h"

namespace tidepool {

enum class CsvKind : uint8_t {
  kNumber,    // decimal or scientific, finite in f32; blanks around it do not count
  kInteger,   // the same without a fraction ("1e3", "1.0"), within 64 bits; as a label i64
  kCategory,  // one of some texts
};

// A column that is read.
struct CsvColumn {
  std::string name;                          // as the header has it
  CsvKind kind = CsvKind::kNumber;           // what its fields are
  std::vector<std::string> categories = {};  // of kCategory; none: those of the file, sorted
  // Takes the place of a missing value; of a category any number: none of them is 1. Without, and
  // for labels, one that is missing is an error.
  std::optional<double> if_missing = {};
  bool is_label = false;  // else it is among the features
};

// Which columns, and how the file is written.
struct CsvSchema {
  std::vector<CsvColumn> columns;  // features and labels in the order in which arrays have them
  bool has_header = true;          // the first line
  // What stands for a missing value.
  std::vector<std::string> missing = {"", "NA", "NaN", "nan", "null"};
  CsvFormat format = {};                  // separator, quotes and limits
  int64_t max_categories = 1024;          // of a column, found in the file
  int64_t max_values = int64_t{1} << 30;  // of all features
};

// What was read.
struct CsvTable {
  // [rows, values] f32, and of labels i64 [rows] for one category or integer, f32 [rows, labels]
  // for numbers; on the heap. Undefined where the schema has no such columns.
  NDArray features, labels;
  std::vector<std::string> feature_names;  // of each value: "area", "kind=flat"
  CsvSchema schema;                        // with the categories
};

// The whole file. Throws as the head of this header says.
CsvTable ReadCsv(const std::string& path, const CsvSchema& schema);
// The schema with the categories that the file has, and nothing held but these: for files that are
// larger than memory (csv_iterator.h). Reads, and checks, the whole file.
CsvSchema FindCsvCategories(const std::string& path, const CsvSchema& schema);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_CSV_FILE_H_
