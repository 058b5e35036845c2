// .npz files through libzip.
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/npy_elements.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"

namespace tidepool {
namespace {

constexpr absl::string_view kSuffix = ".npy";
// Deflate makes no more than this many bytes of one (zlib's technical details).
constexpr uint64_t kMostExpansion = 1032;

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

[[noreturn]] void ThrowZip(const std::string& name, const char* what, zip_error_t* error) {
  const std::string message = absl::StrCat(name, ": ", what, ": ", zip_error_strerror(error));
  switch (zip_error_code_zip(error)) {
    case ZIP_ER_NOZIP:
    case ZIP_ER_INCONS:
    case ZIP_ER_CRC:
    case ZIP_ER_EOF:
    case ZIP_ER_ZLIB:
    case ZIP_ER_COMPRESSED_DATA:
    case ZIP_ER_MULTIDISK:
      ThrowDataLoss(message);
    case ZIP_ER_COMPNOTSUPP:
    case ZIP_ER_ENCRNOTSUPP:
    case ZIP_ER_NOPASSWD:
      ThrowUnimplemented(message);
    default:
      if (zip_error_system_type(error) == ZIP_ET_SYS && zip_error_code_system(error) != 0) {
        ThrowErrno(zip_error_code_system(error), absl::StrCat(name, ": ", what));
      }
      ThrowDataLoss(message);
  }
}

// One array as the bytes of its .npy file, handed to libzip piece by piece.
struct Entry {
  std::string header;
  NDArray array;  // dense
  uint64_t at = 0;

  uint64_t data_bytes() const {
    return static_cast<uint64_t>(array.NumElements()) * DTypeBytes(array.dtype());
  }
};

zip_int64_t ReadEntry(void* context, void* data, zip_uint64_t length, zip_source_cmd_t command) {
  Entry& entry = *static_cast<Entry*>(context);
  switch (command) {
    case ZIP_SOURCE_OPEN:
      entry.at = 0;
      return 0;
    case ZIP_SOURCE_READ: {
      char* out = static_cast<char*>(data);
      uint64_t done = 0;
      if (entry.at < entry.header.size()) {
        done = std::min<uint64_t>(length, entry.header.size() - entry.at);
        std::memcpy(out, entry.header.data() + entry.at, done);
      }
      const uint64_t from = entry.at + done - entry.header.size();
      if (entry.at + done >= entry.header.size() && from < entry.data_bytes()) {
        const uint64_t more = std::min(length - done, entry.data_bytes() - from);
        std::memcpy(out + done, entry.array.raw_data() + from, more);
        done += more;
      }
      entry.at += done;
      return static_cast<zip_int64_t>(done);
    }
    case ZIP_SOURCE_STAT: {
      zip_stat_t* stat = static_cast<zip_stat_t*>(data);
      zip_stat_init(stat);
      stat->size = entry.header.size() + entry.data_bytes();
      stat->valid = ZIP_STAT_SIZE;
      return sizeof(*stat);
    }
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
      return 0;
    case ZIP_SOURCE_ERROR: {
      int* codes = static_cast<int*>(data);
      codes[0] = codes[1] = 0;
      return 2 * sizeof(int);
    }
    case ZIP_SOURCE_SUPPORTS:
      return zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE,
                                            ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
    default:
      return -1;
  }
}

void ReadExactly(zip_file_t* file, void* out, uint64_t bytes, const std::string& name) {
  char* at = static_cast<char*>(out);
  while (bytes > 0) {
    const zip_int64_t got = zip_fread(file, at, bytes);
    if (got < 0) ThrowZip(name, "cannot be read", zip_file_get_error(file));
    if (got == 0) ThrowDataLoss(absl::StrCat(name, ": ends ", bytes, " bytes too early"));
    at += got;
    bytes -= static_cast<uint64_t>(got);
  }
}

NDArray ReadArray(zip_t* archive, const zip_stat_t& stat, const std::string& name, Place place) {
  std::unique_ptr<zip_file_t, Discard> file(zip_fopen_index(archive, stat.index, 0));
  if (file == nullptr) ThrowZip(name, "cannot be opened", zip_get_error(archive));
  std::string text(std::min<uint64_t>(stat.size, kNpyPrefixBytes), '\0');
  ReadExactly(file.get(), text.data(), text.size(), name);
  const NpyHeaderRange range = FindNpyHeader(text, name);
  const size_t before = std::min(range.end, text.size());
  if (stat.size < range.end) {
    ThrowDataLoss(absl::StrCat(name, ": found ", stat.size, " bytes, expected a header up to byte ",
                               range.end));
  }
  text.resize(range.end);
  ReadExactly(file.get(), text.data() + before, range.end - before, name);
  const NpyHeader header = ParseNpyHeader(absl::string_view(text).substr(range.begin), name);
  if (stat.size - range.end != header.data_bytes()) {
    ThrowDataLoss(absl::StrCat(name, ": found ", stat.size - range.end, " bytes of data, expected ",
                               header.data_bytes(), " for ", header.shape.ToString(), " ",
                               DTypeName(header.dtype)));
  }
  const NDArray array = MakeNpyArray(header, place), host = HostArrayFor(array);
  ReadExactly(file.get(), host.raw_data(), header.data_bytes(), name);
  char end;  // reading on checks the checksum
  if (zip_fread(file.get(), &end, 1) != 0) {
    ThrowZip(name, "does not end well", zip_file_get_error(file.get()));
  }
  return FinishNpyArray(header, host, array);
}

}  // namespace

std::map<std::string, NDArray> ReadNpz(const std::string& path, Place place) {
  FileReader readable(path);  // for errors that say which file and why
  int code = 0;
  const std::unique_ptr<zip_t, Discard> archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    ThrowZip(readable.name(), "cannot be opened", &error);
  }
  std::map<std::string, NDArray> arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(i), 0, &stat) != 0) {
      ThrowZip(readable.name(), "has an entry without name or size", zip_get_error(archive.get()));
    }
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    const std::string entry = (stat.valid & ZIP_STAT_NAME) != 0 ? stat.name : "";
    const std::string name = absl::StrCat(readable.name(), ": entry \"", OneLine(entry), "\"");
    if ((stat.valid & kNeeded) != kNeeded) {
      ThrowDataLoss(absl::StrCat(name, ": found no size"));
    }
    if (entry.size() <= kSuffix.size() ||
        absl::string_view(entry).substr(entry.size() - kSuffix.size()) != kSuffix) {
      ThrowUnimplemented(absl::StrCat(name, ": found another file, expected arrays (.npy) only"));
    }
    // Before memory is taken for what cannot be in there.
    if (stat.comp_size > readable.size() || stat.size / kMostExpansion > stat.comp_size) {
      ThrowDataLoss(absl::StrCat(name, ": found ", stat.size, " bytes out of ", stat.comp_size,
                                 " in a file of ", readable.size()));
    }
    const std::string key = entry.substr(0, entry.size() - kSuffix.size());
    if (arrays.count(key) > 0) ThrowDataLoss(absl::StrCat(name, ": found twice"));
    arrays.emplace(key, ReadArray(archive.get(), stat, name, place));
  }
  return arrays;
}

void WriteNpz(const std::string& path, const std::map<std::string, NDArray>& arrays,
              NpzCompression compression) {
  std::vector<std::unique_ptr<Entry>> entries;  // libzip reads them when the archive is closed
  for (const auto& [name, array] : arrays) {
    array.CheckAlive("write_npz", name.c_str());
    auto entry = std::make_unique<Entry>();
    entry->header = SerializeNpyHeader(array.dtype(), array.shape());
    entry->array =
        array.is_dense() && array.device() == Host() ? array : array.CopyTo(Place::Heap());
    entries.push_back(std::move(entry));
  }
  int code = 0;
  std::unique_ptr<zip_t, Discard> archive(
      zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    ThrowZip(OneLine(path), "cannot be written", &error);
  }
  size_t i = 0;
  for (const auto& [name, array] : arrays) {
    zip_source_t* source = zip_source_function(archive.get(), &ReadEntry, entries[i++].get());
    if (source == nullptr) ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
    const zip_int64_t index =
        zip_file_add(archive.get(), absl::StrCat(name, kSuffix).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      ThrowZip(OneLine(path), "cannot hold an array of that name", zip_get_error(archive.get()));
    }
    // The same arrays give the same file: no dates (1980-01-01 is the format's first).
    const auto at = static_cast<zip_uint64_t>(index);
    const int method = compression == NpzCompression::kNone ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
    if (zip_set_file_compression(archive.get(), at, method, 0) != 0 ||
        zip_file_set_dostime(archive.get(), at, 0, 0x21, 0) != 0) {
      ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
    }
  }
  // Writes a temporary file beside it and renames; without entries there is nothing to keep.
  if (arrays.empty()) {
    ThrowInvalidArgument(absl::StrCat(OneLine(path), ": found no arrays to write"));
  }
  if (zip_close(archive.get()) != 0) {
    ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
  }
  archive.release();
}

}  // namespace tidepool
