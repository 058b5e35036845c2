#include "tidepool/ndarray/io/npy_file.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/io/npy_elements.h"
#include "tidepool/ndarray/io/npy_format.h"

namespace tidepool {

namespace {

NDArray MakeNpyArray(const NpyHeader& header, Place place) {
  if (!header.fortran_order) return NDArray(header.shape, header.dtype, place);
  int64_t dims[kMaxRank];
  std::reverse_copy(header.shape.dims(), header.shape.dims() + header.shape.rank(), dims);
  return NDArray(Shape(absl::Span<const int64_t>(dims, header.shape.rank())), header.dtype, place);
}

}  // namespace

NpyArrays MakeNpyArrays(const NpyHeader& header, Place place, const std::string& name) {
  try {
    const NDArray array = MakeNpyArray(header, place);
    return {array, array.device() == Host() ? array
                                            : NDArray(array.shape(), array.dtype(), Place::Heap())};
  } catch (Error& error) {
    error.AddContext(name);
    throw;
  }
}

void FixNpyElements(const NpyHeader& header, absl::Span<std::byte> elements) {
  if (header.swapped) {
    const size_t width = DTypeBytes(header.dtype);
    for (size_t at = 0; at < elements.size(); at += width) {
      std::reverse(elements.data() + at, elements.data() + at + width);
    }
  }
  if (header.dtype == DType::kBool) {
    // A bool of another value than 0 and 1 is not one.
    for (std::byte& element : elements) element = std::byte(element != std::byte{0});
  }
}

NDArray FinishNpyArray(const NpyHeader& header, const NDArray& read, NDArray array) {
  FixNpyElements(header, absl::MakeSpan(read.raw_data(), header.data_bytes()));
  if (array.device() != Host()) Dispatch(OpCode::kCopy, {&read}, {&array});
  return header.fortran_order ? array.Transpose() : array;
}

NpyHeader ReadNpyHeader(FileReader& file, uint64_t* begin) {
  std::string text(std::min<uint64_t>(file.size(), kNpyPrefixBytes), '\0');
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size()),
                   "header");
  const NpyHeaderRange range = FindNpyHeader(text, file.name());
  if (file.size() < range.end) {
    ThrowDataLoss(absl::StrCat(file.name(), ": found a file of ", file.size(),
                               " bytes, expected a header up to byte ", range.end));
  }
  // A header of version 1.0 begins within the prefix.
  const size_t before = std::min(range.end, text.size());
  text.resize(range.end);
  if (range.end > before) {
    file.ReadExactly(
        absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()) + before, range.end - before),
        "header");
  }
  const NpyHeader header = ParseNpyHeader(absl::string_view(text).substr(range.begin), file.name());
  const uint64_t found = file.size() - range.end;
  if (file.size() < kNpyPrefixBytes || found != header.data_bytes()) {
    ThrowDataLoss(absl::StrCat(file.name(), ": found ", found, " bytes of data, expected ",
                               header.data_bytes(), " for ", header.shape.ToString(), " ",
                               DTypeName(header.dtype)));
  }
  *begin = range.end;
  return header;
}

NDArray ReadNpy(const std::string& path, Place place) {
  FileReader file(path);
  uint64_t begin;
  const NpyHeader header = ReadNpyHeader(file, &begin);
  const auto [array, host] = MakeNpyArrays(header, place, file.name());
  if (header.data_bytes() > 0) {
    // What the prefix read beyond a short header of version 1.0 cannot be: headers are longer.
    file.ReadExactly(absl::MakeSpan(host.raw_data(), header.data_bytes()), "data");
  }
  return FinishNpyArray(header, host, array);
}

NDArray ParseNpy(absl::string_view bytes, const std::string& name, Place place) {
  const NpyHeaderRange range = FindNpyHeader(bytes.substr(0, kNpyPrefixBytes), name);
  if (bytes.size() < range.end) {
    ThrowDataLoss(absl::StrCat(name, ": found a file of ", bytes.size(),
                               " bytes, expected a header up to byte ", range.end));
  }
  const NpyHeader header = ParseNpyHeader(bytes.substr(range.begin, range.end - range.begin), name);
  if (bytes.size() - range.end != header.data_bytes()) {
    ThrowDataLoss(absl::StrCat(name, ": found ", bytes.size() - range.end,
                               " bytes of data, expected ", header.data_bytes(), " for ",
                               header.shape.ToString(), " ", DTypeName(header.dtype)));
  }
  const auto [array, host] = MakeNpyArrays(header, place, name);
  if (header.data_bytes() > 0) {
    std::memcpy(host.raw_data(), bytes.data() + range.end, header.data_bytes());
  }
  return FinishNpyArray(header, host, array);
}

void WriteNpy(const std::string& path, const NDArray& array) {
  array.CheckAlive("write_npy", "X");
  const NDArray dense =
      array.is_dense() && array.device() == Host() ? array : array.CopyTo(Place::Heap());
  const std::string header = SerializeNpyHeader(array.dtype(), array.shape());
  AtomicFile file(path);
  file.Append(header);
  const size_t bytes = static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype());
  if (bytes > 0) file.Append(absl::MakeConstSpan(dense.raw_data(), bytes));
  file.Commit();
}

}  // namespace tidepool
