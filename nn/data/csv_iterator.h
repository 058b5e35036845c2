// Batches of a CSV file's rows, in their order, read as they are asked for: of a file that is larger
// than memory nothing is held but a batch.
//
//   const CsvSchema schema = FindCsvCategories("clicks.csv.gz", wanted);   // one pass, if it has any
//   CsvIterator batches("clicks.csv.gz", schema, {.batch_size = 256});
//   AsyncDataSetIterator ahead(batches, {.prefetch = 4});
//
// Features f32 [n, values], labels as those of ReadCsv. Reset() begins at the file's first row. The
// order is the file's: shuffle it beforehand. Of n ranks each has a part of the same batches, as
// ExampleIterator's; the last one, if it is not whole, has one rank alone or none.
//
// Errors: as ReadCsv (kDataLoss for a file that becomes shorter among them), out of the constructor for a file that cannot be opened, its header and its
// schema, else out of Next(), behind the batches before it, and again until Reset(). What Reset()
// throws comes out of Next() too, until a Reset() succeeds. Memory: a batch
// twice, and what CsvRecords holds. Threads: one at a time.
#ifndef TIDEPOOL_NN_DATA_CSV_ITERATOR_H_
#define TIDEPOOL_NN_DATA_CSV_ITERATOR_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "tidepool/nn/data/csv_file.h"
#include "tidepool/nn/data/csv_reader.h"
#include "tidepool/nn/data/data_set_iterator.h"

namespace tidepool::nn {

// Which rows a batch has.
struct CsvBatching {
  int64_t batch_size = 32;  // of each rank
  bool drops_last = false;  // a batch that is not whole; always with several ranks
  int rank = 0, ranks = 1;  // of a job: each reads the file and takes its part of each batch
};

class CsvIterator final : public DataSetIterator {
 public:
  // Throws kInvalidArgument for a schema without features or with categories that are not given, a
  // batch size below 1 or one whose ranks have more than 2^32 rows, and a rank that is not from 0 to
  // ranks - 1.
  CsvIterator(const std::string& path, const CsvSchema& schema, const CsvBatching& batching = {});

  void Reset() override;
  // Rows of this epoch, of all ranks, in whole batches and before an error.
  int64_t rows() const { return rows_; }

 protected:
  std::optional<DataSet> NextBatch(const std::stop_token& stop) override;

 private:
  const std::string path_;
  const CsvSchema schema_;
  const CsvBatching batching_;
  std::unique_ptr<CsvReader> reader_;  // null behind an error
  std::exception_ptr error_;
  int64_t rows_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_CSV_ITERATOR_H_
