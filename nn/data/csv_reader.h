// Rows of a CSV file by a schema, as many at a time as there is to be room for. See csv_file.h and
// csv_iterator.h, whose errors these are.
#ifndef TIDEPOOL_NN_DATA_CSV_READER_H_
#define TIDEPOOL_NN_DATA_CSV_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/csv_file.h"
#include "tidepool/nn/data/csv_records.h"

namespace tidepool {

// Threads: one.
class CsvReader {
 public:
  // Reads the header.
  CsvReader(const std::string& path, const CsvSchema& schema);

  // Rows of at most `most`, behind those that are there; fewer only at the file's end.
  int64_t Read(int64_t most);
  // The same, without their values.
  int64_t Skip(int64_t most);
  // Behind the last row: categories that the file was searched for are the schema's.
  void FinishCategories();
  const CsvSchema& schema() const { return schema_; }
  // Features of a row, by what is known of categories so far.
  int64_t Width() const;
  // The rows that were read, without the schema.
  CsvTable Take(const Place& place) const;
  // Lets go of the rows, and keeps the room.
  void Clear();

 private:
  // A column of the rows that were read.
  struct Cells {
    const CsvColumn* column = nullptr;
    size_t field = 0;                                 // in a record
    std::vector<float> numbers;                       // of kNumber, and of kInteger as a feature
    std::vector<int64_t> integers;                    // of kInteger as a label
    std::vector<int32_t> codes;                       // of kCategory
    absl::flat_hash_map<std::string, int32_t> known;  // categories
    bool learns = false;
  };

  // A field of the record: without blanks around it, unless it stands in quotes.
  absl::string_view TextOf(size_t field) const;
  void ReadHeader();
  bool ReadRow();
  [[noreturn]] void Fail(const Cells& cells, absl::string_view text,
                         absl::string_view expected) const;
  void ReadCell(Cells& cells);
  int32_t CodeOf(Cells& cells, absl::string_view text);
  // From the order in which they came to that of their texts, which does not depend on rows.
  void SortCategories(Cells& cells);
  void CheckValues(int64_t width) const;
  NDArray Labels(const Place& place) const;

  CsvRecords records_;
  CsvSchema schema_;
  std::vector<Cells> cells_;  // in the order of the schema
  size_t fields_ = 0;
  int64_t rows_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_CSV_READER_H_
