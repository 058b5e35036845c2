#include "tidepool/nn/data/npy_examples.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/npy_elements.h"
#include "tidepool/ndarray/io/npy_format.h"

namespace tidepool::nn {

struct NpyExamples::File {
  explicit File(const std::string& path) : reader(path) { header = ReadNpyHeader(reader, &begin); }

  FileReader reader;
  NpyHeader header;
  uint64_t begin = 0;      // of the data
  uint64_t row_bytes = 0;  // of an example
};

NpyExamples::NpyExamples(const NpyFiles& files)
    : features_(Open(files.features)),
      labels_(Open(files.labels)),
      features_mask_(Open(files.features_mask)),
      labels_mask_(Open(files.labels_mask)) {
  if (features_ == nullptr)
    ThrowInvalidArgument("NpyExamples: found no file of features, expected one");
  count_ = features_->header.shape[0];
  for (const File* file : {labels_.get(), features_mask_.get(), labels_mask_.get()}) {
    if (file == nullptr || file->header.shape[0] == count_) continue;
    ThrowInvalidArgument(absl::StrCat(file->reader.name(), ": found ", file->header.shape[0],
                                      " examples, expected ", count_, " as ",
                                      features_->reader.name(), " has"));
  }
}

NpyExamples::~NpyExamples() = default;

std::unique_ptr<const NpyExamples::File> NpyExamples::Open(const std::string& path) {
  if (path.empty()) return nullptr;
  auto file = std::make_unique<File>(path);
  const NpyHeader& header = file->header;
  if (header.shape.rank() == 0) {
    ThrowInvalidArgument(
        absl::StrCat(file->reader.name(),
                     ": found a single number, expected an array whose first axis is that "
                     "of examples"));
  }
  if (header.fortran_order && header.shape.rank() > 1) {
    ThrowUnimplemented(
        absl::StrCat(file->reader.name(),
                     ": found an array in Fortran order, expected one in C order, as "
                     "numpy.ascontiguousarray makes it"));
  }
  const int64_t examples = header.shape[0];
  file->row_bytes = examples == 0 ? 0 : header.data_bytes() / static_cast<uint64_t>(examples);
  return file;
}

NDArray NpyExamples::Rows(const File* file, const ChosenExamples& which,
                          const std::stop_token& stop) {
  if (file == nullptr) return {};
  const Shape& shape = file->header.shape;
  std::array<int64_t, kMaxRank> dims;
  std::copy_n(shape.dims(), shape.rank(), dims.begin());
  dims[0] = which.size();
  NDArray rows(Shape(absl::MakeConstSpan(dims.data(), static_cast<size_t>(shape.rank()))),
               file->header.dtype);
  std::byte* to = rows.raw_data();
  for (int64_t i = 0, next; i < which.size() && !stop.stop_requested(); i = next) {
    for (next = i + 1; next < which.size() && which[next] == which[next - 1] + 1; ++next) {
    }
    const size_t bytes = static_cast<size_t>(next - i) * file->row_bytes;
    if (bytes == 0) continue;
    file->reader.ReadExactlyAt(file->begin + static_cast<uint64_t>(which[i]) * file->row_bytes,
                               absl::MakeSpan(to, bytes), "examples");
    FixNpyElements(file->header, absl::MakeSpan(to, bytes));
    to += bytes;
  }
  return rows;
}

DataSet NpyExamples::Make(const ChosenExamples& which, const std::stop_token& stop) const {
  DataSet batch(Rows(features_.get(), which, stop), Rows(labels_.get(), which, stop));
  batch.features_mask = Rows(features_mask_.get(), which, stop);
  batch.labels_mask = Rows(labels_mask_.get(), which, stop);
  return batch;
}

}  // namespace tidepool::nn
