#include "tidepool/nn/data/csv_file.h"

#include <limits>

#include "tidepool/nn/data/csv_reader.h"

namespace tidepool {

CsvTable ReadCsv(const std::string& path, const CsvSchema& schema) {
  CsvReader reader(path, schema);
  reader.Read(std::numeric_limits<int64_t>::max());
  reader.FinishCategories();
  CsvTable table = reader.Take(Place::Heap());
  table.schema = reader.schema();
  return table;
}

CsvSchema FindCsvCategories(const std::string& path, const CsvSchema& schema) {
  constexpr int64_t kRows = 4096;
  CsvReader reader(path, schema);
  while (reader.Read(kRows) == kRows) reader.Clear();
  reader.Clear();
  reader.FinishCategories();
  return reader.schema();
}

}  // namespace tidepool
