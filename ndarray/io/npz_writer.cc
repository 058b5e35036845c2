// .npz files are written through libzip.
#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/io/zip_error.h"

namespace tidepool {
namespace {

using internal::DiscardZip;
using internal::kNpySuffix;
using internal::ShownEntry;
using internal::ThrowZip;

constexpr size_t kMostNameBytes = 65535;  // the format's lengths of names have 16 bits

// The archive as libzip writes it: from front to back, but for the header of an entry, to which it
// comes back with sizes and checksum.
class ArchiveOutput {
 public:
  explicit ArchiveOutput(const std::string& path)
      : file_(path),
        again_(open(file_.temporary_path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW)) {
    if (again_ < 0) ThrowErrno(errno, absl::StrCat("write ", OneLine(path)));
    zip_error_init(&error_);
  }
  ~ArchiveOutput() {
    zip_error_fini(&error_);
    close(again_);
  }
  ArchiveOutput(const ArchiveOutput&) = delete;
  ArchiveOutput& operator=(const ArchiveOutput&) = delete;

  static zip_int64_t Do(void* context, void* data, zip_uint64_t length, zip_source_cmd_t command) {
    return static_cast<ArchiveOutput*>(context)->Do(data, length, command);
  }
  // What went wrong while libzip wrote, if anything.
  void Rethrow() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  void Commit() { file_.Commit(); }

 private:
  zip_int64_t Do(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_STAT:  // there is no archive yet
        zip_error_set(&error_, ZIP_ER_READ, ENOENT);
        return -1;
      case ZIP_SOURCE_BEGIN_WRITE:
      case ZIP_SOURCE_COMMIT_WRITE:
      case ZIP_SOURCE_ROLLBACK_WRITE:
      case ZIP_SOURCE_REMOVE:
      case ZIP_SOURCE_FREE:
        return 0;
      case ZIP_SOURCE_WRITE:
        try {
          Write(absl::MakeConstSpan(static_cast<const std::byte*>(data), length));
        } catch (const std::exception&) {
          failure_ = std::current_exception();
          zip_error_set(&error_, ZIP_ER_WRITE, EIO);
          return -1;
        }
        return static_cast<zip_int64_t>(length);
      case ZIP_SOURCE_SEEK_WRITE: {
        const zip_int64_t to =
            zip_source_seek_compute_offset(at_, file_.size(), data, length, &error_);
        if (to < 0) return -1;
        at_ = static_cast<uint64_t>(to);
        return 0;
      }
      case ZIP_SOURCE_TELL_WRITE:
        return static_cast<zip_int64_t>(at_);
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_SUPPORTS:
        // It asks for those that read, and reads nothing of an archive that is not there.
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS,
            ZIP_SOURCE_REMOVE, ZIP_SOURCE_BEGIN_WRITE, ZIP_SOURCE_COMMIT_WRITE,
            ZIP_SOURCE_ROLLBACK_WRITE, ZIP_SOURCE_WRITE, ZIP_SOURCE_SEEK_WRITE,
            ZIP_SOURCE_TELL_WRITE, -1);
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  void Write(absl::Span<const std::byte> bytes) {
    if (at_ < file_.size()) {
      const absl::Span<const std::byte> before = bytes.subspan(0, file_.size() - at_);
      for (size_t done = 0; done < before.size();) {
        const ssize_t wrote = pwrite(again_, before.data() + done, before.size() - done,
                                     static_cast<off_t>(at_ + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0)
          ThrowErrno(errno, absl::StrCat("write ", OneLine(file_.path()), ": byte ", at_));
        done += static_cast<size_t>(wrote);
      }
      at_ += before.size();
      bytes.remove_prefix(before.size());
    }
    file_.Append(bytes);
    at_ += bytes.size();
  }

  AtomicFile file_;
  const int again_;  // the same file, for what is written once more
  uint64_t at_ = 0;
  std::exception_ptr failure_;
  zip_error_t error_;
};

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

// Of an array that is written: what ReadNpz and numpy would not find again.
void CheckName(const std::string& path, const std::string& name) {
  const char* const found = name.empty()                   ? "no name"
                            : name.find('\0') != name.npos ? "a name with a zero byte"
                            : !IsUtf8(name)                ? "a name that is not UTF-8"
                            : name.size() + kNpySuffix.size() > kMostNameBytes ? "a longer name"
                                                                               : nullptr;
  if (found == nullptr) return;
  ThrowInvalidArgument(absl::StrCat(path, ": array ", ShownEntry(name), ": found ", found,
                                    ", expected 1 to ", kMostNameBytes - kNpySuffix.size(),
                                    " bytes of UTF-8"));
}

}  // namespace

void WriteNpz(const std::string& path, const std::map<std::string, NDArray>& arrays,
              NpzCompression compression) {
  std::vector<std::unique_ptr<Entry>> entries;  // libzip reads them when the archive is closed
  for (const auto& [name, array] : arrays) {
    CheckName(OneLine(path), name);
    array.CheckAlive("write_npz", name.c_str());
    auto entry = std::make_unique<Entry>();
    try {
      entry->header = SerializeNpyHeader(array.dtype(), array.shape());
    } catch (Error& error) {
      error.AddContext(absl::StrCat(OneLine(path), ": array ", ShownEntry(name)));
      throw;
    }
    entry->array =
        array.is_dense() && array.device() == Host() ? array : array.CopyTo(Place::Heap());
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) {
    ThrowInvalidArgument(absl::StrCat(OneLine(path), ": found no arrays to write"));
  }
  ArchiveOutput output(path);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const bytes = zip_source_function_create(&ArchiveOutput::Do, &output, &error);
  std::unique_ptr<zip_t, DiscardZip> archive(
      bytes != nullptr ? zip_open_from_source(bytes, ZIP_CREATE | ZIP_TRUNCATE, &error) : nullptr);
  if (archive == nullptr) {
    zip_source_free(bytes);
    ThrowZip(OneLine(path), "cannot be written", &error);
  }
  size_t i = 0;
  for (const auto& [name, array] : arrays) {
    zip_source_t* source = zip_source_function(archive.get(), &ReadEntry, entries[i++].get());
    if (source == nullptr)
      ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
    const zip_int64_t index = zip_file_add(archive.get(), absl::StrCat(name, kNpySuffix).c_str(),
                                           source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      ThrowZip(absl::StrCat(OneLine(path), ": array ", ShownEntry(name)), "cannot be held",
               zip_get_error(archive.get()));
    }
    // The same arrays give the same file: no dates (1980-01-01 is the format's first).
    const auto at = static_cast<zip_uint64_t>(index);
    const int method = compression == NpzCompression::kNone ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
    if (zip_set_file_compression(archive.get(), at, method, 0) != 0 ||
        zip_file_set_dostime(archive.get(), at, 0, 0x21, 0) != 0) {
      ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
    }
  }
  if (zip_close(archive.get()) != 0) {
    output.Rethrow();
    ThrowZip(OneLine(path), "cannot be written", zip_get_error(archive.get()));
  }
  archive.release();
  output.Commit();
}

}  // namespace tidepool
