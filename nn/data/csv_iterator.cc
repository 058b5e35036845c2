#include "tidepool/nn/data/csv_iterator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

const CsvBatching& Checked(const CsvBatching& batching) {
  constexpr int64_t kMostRows = int64_t{1} << 32;
  if (batching.batch_size >= 1 && batching.rank >= 0 && batching.rank < batching.ranks &&
      batching.batch_size <= kMostRows / batching.ranks) {
    return batching;
  }
  ThrowInvalidArgument(absl::StrCat("CsvIterator: found batch size ", batching.batch_size,
                                    " of rank ", batching.rank, " of ", batching.ranks,
                                    ", expected at least 1, a rank below ranks and at most ",
                                    kMostRows, " rows of all"));
}

const CsvSchema& Checked(const CsvSchema& schema) {
  bool has_features = false;
  for (const CsvColumn& column : schema.columns) {
    has_features |= !column.is_label;
    if (column.kind != CsvKind::kCategory || !column.categories.empty()) continue;
    ThrowInvalidArgument(absl::StrCat("CsvIterator: column \"", column.name,
                                      "\": found no categories, expected those of "
                                      "FindCsvCategories"));
  }
  if (!has_features) {
    ThrowInvalidArgument("CsvIterator: found a schema without features, expected at least one");
  }
  return schema;
}

}  // namespace

CsvIterator::CsvIterator(const std::string& path, const CsvSchema& schema,
                         const CsvBatching& batching)
    : path_(path), schema_(Checked(schema)), batching_(Checked(batching)) {
  Reset();
}

void CsvIterator::Reset() {
  rows_ = 0;
  reader_.reset();
  error_ = nullptr;
  try {
    reader_ = std::make_unique<CsvReader>(path_, schema_);
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

std::optional<DataSet> CsvIterator::NextBatch(const std::stop_token&) {
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (reader_ == nullptr) return std::nullopt;
  const int64_t size = batching_.batch_size;
  try {
    int64_t read = reader_->Skip(batching_.rank * size);
    if (read == batching_.rank * size) read += reader_->Read(size);
    if (read == (batching_.rank + 1) * size) {
      read += reader_->Skip((batching_.ranks - batching_.rank - 1) * size);
    }
    if (read < batching_.ranks * size) {
      const bool keeps = !batching_.drops_last && batching_.ranks == 1 && read > 0;
      if (!keeps) {
        reader_.reset();
        return std::nullopt;
      }
    }
    rows_ += read;
    CsvTable table = reader_->Take(Place::Current());
    reader_->Clear();
    return DataSet(std::move(table.features), std::move(table.labels));
  } catch (...) {
    error_ = std::current_exception();
    reader_.reset();
    throw;
  }
}

}  // namespace tidepool::nn
