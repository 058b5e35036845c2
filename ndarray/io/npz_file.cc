// .npz files are read through libzip.
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/npy_elements.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/io/zip_error.h"

namespace tidepool {
namespace {

using internal::DiscardZip;
using internal::ShownEntry;
using internal::ThrowZip;
constexpr absl::string_view kSuffix = internal::kNpySuffix;
// What a zip file has beside the data of an entry at least: its own header and that in the
// directory; and at its end.
constexpr uint64_t kLeastEntryBytes = 30 + 46, kLeastEndBytes = 22;
// Deflate makes no more than this many bytes of one (zlib's technical details).
constexpr uint64_t kMostExpansion = 1032;

// The file that was opened and looked at, for libzip, and which of its bytes were read.
class ArchiveFile {
 public:
  explicit ArchiveFile(const FileReader& file) : file_(file) { zip_error_init(&error_); }
  ~ArchiveFile() { zip_error_fini(&error_); }
  ArchiveFile(const ArchiveFile&) = delete;
  ArchiveFile& operator=(const ArchiveFile&) = delete;

  // From where to where bytes were read since the last call; begin >= end: none.
  std::pair<uint64_t, uint64_t> TakeRange() {
    return {std::exchange(lowest_, UINT64_MAX), std::exchange(highest_, 0)};
  }

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
        lowest_ = std::min(lowest_, at_);
        at_ += count;
        highest_ = std::max(highest_, at_);
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
  uint64_t lowest_ = UINT64_MAX, highest_ = 0;
  zip_error_t error_;
};

// `source` stays as long.
std::unique_ptr<zip_t, DiscardZip> OpenArchive(ArchiveFile& source, const std::string& name) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const bytes = zip_source_function_create(&ArchiveFile::Do, &source, &error);
  zip_t* const archive =
      bytes != nullptr ? zip_open_from_source(bytes, ZIP_RDONLY, &error) : nullptr;
  if (archive == nullptr) {
    zip_source_free(bytes);
    ThrowZip(name, "cannot be opened", &error);
  }
  return std::unique_ptr<zip_t, DiscardZip>(archive);
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
  std::unique_ptr<zip_file_t, DiscardZip> file(zip_fopen_index(archive, stat.index, 0));
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
  const auto [array, host] = MakeNpyArrays(header, place, name);
  ReadExactly(file.get(), host.raw_data(), header.data_bytes(), name);
  char end;  // reading on checks the checksum
  if (zip_fread(file.get(), &end, 1) != 0) {
    ThrowZip(name, "does not end well", zip_file_get_error(file.get()));
  }
  return FinishNpyArray(header, host, array);
}

// Throws for what cannot be in there, before memory is taken for it: stored entries are as large as
// they are in the file, all together have no more bytes than it, and compressed ones are within the
// limit.
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
    const std::string name = absl::StrCat(file.name(), ": entry ", ShownEntry(entry));
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
  // Which libzip takes for an archive without entries.
  if (file.size() == 0) {
    ThrowDataLoss(absl::StrCat(file.name(), ": found no bytes, expected a zip archive"));
  }
  ArchiveFile source(file);
  const std::unique_ptr<zip_t, DiscardZip> archive = OpenArchive(source, file.name());
  std::map<std::string, NDArray> arrays;
  std::map<uint64_t, uint64_t> taken;  // ends of entries by their begins
  source.TakeRange();                  // of the directory
  for (const NpzEntry& entry : CheckedEntries(archive.get(), file, max_inflated_bytes)) {
    arrays.emplace(entry.key, ReadArray(archive.get(), entry, place));
    const auto [begin, end] = source.TakeRange();
    const auto after = taken.lower_bound(end);
    if (after != taken.begin() && std::prev(after)->second > begin) {
      ThrowDataLoss(absl::StrCat(
          entry.name, ": found bytes ", begin, " to ", end,
          " of the file, which another entry has too, expected entries that share none"));
    }
    taken.emplace(begin, end);
  }
  return arrays;
}

}  // namespace tidepool
