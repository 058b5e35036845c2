// .npz files through libzip.
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/io/npy_elements.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"

namespace tidepool {
namespace {

constexpr absl::string_view kSuffix = ".npy";
// What a zip file has beside the data of an entry at least: its own header and that in the
// directory; and at its end.
constexpr uint64_t kLeastEntryBytes = 30 + 46, kLeastEndBytes = 22;
constexpr size_t kMostShown = 200;        // of a name in a message
constexpr size_t kMostNameBytes = 65535;  // the format's lengths of names have 16 bits
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

// The file that was opened and looked at, for libzip.
class ArchiveFile {
 public:
  explicit ArchiveFile(const FileReader& file) : file_(file) { zip_error_init(&error_); }
  ~ArchiveFile() { zip_error_fini(&error_); }
  ArchiveFile(const ArchiveFile&) = delete;
  ArchiveFile& operator=(const ArchiveFile&) = delete;

  static zip_int64_t Do(void* context, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<ArchiveFile*>(context)->Do(data, length, command);
  }

 private:
  zip_int64_t Do(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN:
        at_ = 0;
        return 0;
      case ZIP_SOURCE_CLOSE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_READ: {
        const uint64_t count = std::min<uint64_t>(length, file_.size() - at_);
        try {
          file_.ReadExactlyAt(at_, absl::MakeSpan(static_cast<std::byte*>(data), count), "zip");
        } catch (const std::exception&) {
          zip_error_set(&error_, ZIP_ER_READ, EIO);
          return -1;
        }
        at_ += count;
        return static_cast<zip_int64_t>(count);
      }
      case ZIP_SOURCE_SEEK: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(at_, file_.size(), data, length, &error_);
        if (to < 0) return -1;
        at_ = static_cast<uint64_t>(to);
        return 0;
      }
      case ZIP_SOURCE_TELL:
        return static_cast<zip_int64_t>(at_);
      case ZIP_SOURCE_STAT: {
        zip_stat_t* const stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = file_.size();
        stat->valid = ZIP_STAT_SIZE;
        return sizeof(*stat);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  const FileReader& file_;
  uint64_t at_ = 0;
  zip_error_t error_;
};

// `source` stays as long.
std::unique_ptr<zip_t, Discard> OpenArchive(ArchiveFile& source, const std::string& name) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const bytes = zip_source_function_create(&ArchiveFile::Do, &source, &error);
  zip_t* const archive =
      bytes != nullptr ? zip_open_from_source(bytes, ZIP_RDONLY, &error) : nullptr;
  if (archive == nullptr) {
    zip_source_free(bytes);
    ThrowZip(name, "cannot be opened", &error);
  }
  return std::unique_ptr<zip_t, Discard>(archive);
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

struct NpzEntry {
  std::string key;   // the array's name
  std::string name;  // in messages
  zip_uint64_t index;
  uint64_t size;  // as it was checked
};

NDArray ReadArray(zip_t* archive, const NpzEntry& stat, Place place) {
  const std::string& name = stat.name;
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

// Of an array that is written: what ReadNpz and numpy would not find again.
void CheckName(const std::string& path, const std::string& name) {
  const char* const found = name.empty()                   ? "no name"
                            : name.find('\0') != name.npos ? "a name with a zero byte"
                            : !IsUtf8(name)                ? "a name that is not UTF-8"
                            : name.size() + kSuffix.size() > kMostNameBytes ? "a longer name"
                                                                            : nullptr;
  if (found == nullptr) return;
  ThrowInvalidArgument(absl::StrCat(path, ": array \"", OneLine(name.substr(0, kMostShown)),
                                    "\": found ", found, ", expected 1 to ",
                                    kMostNameBytes - kSuffix.size(), " bytes of UTF-8"));
}

// Throws for what cannot be in there, before memory is taken for it: stored entries are as large as
// they are in the file, no two have the same bytes of it, and compressed ones are within the limit.
std::vector<NpzEntry> CheckedEntries(zip_t* archive, const FileReader& file,
                                     uint64_t max_inflated) {
  std::vector<NpzEntry> entries;
  std::set<std::string> keys;
  uint64_t in_file = kLeastEndBytes, inflated = 0;
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    if (zip_stat_index(archive, static_cast<zip_uint64_t>(i), 0, &stat) != 0) {
      ThrowZip(file.name(), "has an entry without name or size", zip_get_error(archive));
    }
    constexpr zip_uint64_t kNeeded =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    const std::string entry = (stat.valid & ZIP_STAT_NAME) != 0 ? stat.name : "";
    const std::string name =
        absl::StrCat(file.name(), ": entry \"", OneLine(entry.substr(0, kMostShown)), "\"");
    if ((stat.valid & kNeeded) != kNeeded) {
      ThrowDataLoss(absl::StrCat(name, ": found no size"));
    }
    if (entry.size() <= kSuffix.size() ||
        absl::string_view(entry).substr(entry.size() - kSuffix.size()) != kSuffix) {
      ThrowUnimplemented(absl::StrCat(name, ": found another file, expected arrays (.npy) only"));
    }
    const bool is_stored = stat.comp_method == ZIP_CM_STORE;
    if (!is_stored && stat.comp_method != ZIP_CM_DEFLATE) {
      ThrowUnimplemented(absl::StrCat(name, ": found compression method ", stat.comp_method,
                                      ", expected 0 (stored) or 8 (deflate)"));
    }
    if (stat.comp_size > file.size() || stat.size / kMostExpansion > stat.comp_size ||
        (is_stored && stat.size != stat.comp_size)) {
      ThrowDataLoss(absl::StrCat(name, ": found ", stat.size, " bytes out of ", stat.comp_size,
                                 " in a file of ", file.size()));
    }
    in_file += stat.comp_size + kLeastEntryBytes;
    if (in_file > file.size()) {
      ThrowDataLoss(absl::StrCat(name, ": found entries of at least ", in_file,
                                 " bytes up to this one in a file of ", file.size(),
                                 ", expected entries that share none"));
    }
    if (!is_stored) inflated += stat.size;
    if (inflated > max_inflated) {
      ThrowResourceExhausted(absl::StrCat(name, ": found ", inflated,
                                          " bytes of compressed arrays up to this one, ",
                                          "expected at most ", max_inflated));
    }
    std::string key = entry.substr(0, entry.size() - kSuffix.size());
    if (!keys.insert(key).second) ThrowDataLoss(absl::StrCat(name, ": found twice"));
    entries.push_back({std::move(key), name, stat.index, stat.size});
  }
  return entries;
}

}  // namespace

std::map<std::string, NDArray> ReadNpz(const std::string& path, Place place,
                                       uint64_t max_inflated_bytes) {
  const FileReader file(path);
  ArchiveFile source(file);
  const std::unique_ptr<zip_t, Discard> archive = OpenArchive(source, file.name());
  std::map<std::string, NDArray> arrays;
  for (const NpzEntry& entry : CheckedEntries(archive.get(), file, max_inflated_bytes)) {
    arrays.emplace(entry.key, ReadArray(archive.get(), entry, place));
  }
  return arrays;
}

void WriteNpz(const std::string& path, const std::map<std::string, NDArray>& arrays,
              NpzCompression compression) {
  std::vector<std::unique_ptr<Entry>> entries;  // libzip reads them when the archive is closed
  for (const auto& [name, array] : arrays) {
    CheckName(OneLine(path), name);
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
