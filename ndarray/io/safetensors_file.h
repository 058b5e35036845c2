// Reads and writes files of named tensors in the safetensors format, as the Python package and most
// model hubs use it.
//
//   std::vector<SafetensorView> tensors = {{"w", "F32", {2, 3}, bytes_of_w}};
//   WriteSafetensors("model.safetensors", {{"format", "tidepool"}}, tensors);
//
//   SafetensorsReader reader = SafetensorsReader::Open("model.safetensors");
//   const SafetensorInfo& w = reader.Find("w");
//   reader.Read(w, 0, bytes_of_my_array);
//
// Bytes are little-endian and row-major; nothing is converted. The format and what is refused:
// safetensors_format.h.
#ifndef TIDEPOOL_NDARRAY_IO_SAFETENSORS_FILE_H_
#define TIDEPOOL_NDARRAY_IO_SAFETENSORS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/ndarray/io/safetensors_info.h"

namespace tidepool {

// A file whose header has been read and checked, open as long as the reader lives. Const calls from several threads are safe.
class SafetensorsReader {
 public:
  // Reads the header of `path` and checks it against the file's size. Throws kNotFound, kPermissionDenied, ... from
  // errno; kFailedPrecondition for a folder; kInvalidArgument for a pipe or device; kDataLoss for a broken
  // file, naming tensor and field or byte, found and expected.
  static SafetensorsReader Open(const std::string& path);
  // The same of a file's bytes (copied); `name` stands for the file in messages.
  static SafetensorsReader Parse(absl::Span<const std::byte> bytes, const std::string& name);

  // In the order of their data.
  const std::vector<SafetensorInfo>& tensors() const { return header_.tensors; }

  // Texts of the header's "__metadata__"; and the bytes of all tensors together.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  uint64_t data_bytes() const { return header_.data_bytes; }

  // Whether there is a tensor of that name. Cost: logarithmic.
  bool Contains(absl::string_view name) const { return FindOrNull(name) != nullptr; }
  // nullptr if there is none. Cost: logarithmic.
  const SafetensorInfo* FindOrNull(absl::string_view name) const;
  // Throws kNotFound that names the file, the tensor and the first few there are.
  const SafetensorInfo& Find(absl::string_view name) const;

  // Bytes of one of tensors(), or a copy of it, from byte `begin` of it on, straight from the file to where they are wanted.
  // Throws kNotFound and kInvalidArgument for an info that is not this file's (another name, offsets, type or shape),
  // kInvalidArgument beyond the tensor's end, kDataLoss where the file has become shorter, and from errno.
  void Read(const SafetensorInfo& info, uint64_t begin, absl::Span<std::byte> to) const;
  // The bytes of one of tensors() in memory of the reader's, valid as long as it (also when it is moved): the first call
  // reads those of all. They start at a multiple of 64 bytes, so that each tensor of a file written by this library or
  // the reference is aligned to its element; those of other writers may not be. Throws as Read, and std::bad_alloc.
  absl::Span<const std::byte> data(const SafetensorInfo& info) const;

 private:
  struct Data;
  struct Free {
    void operator()(Data* data) const;
  };

  SafetensorsReader(std::string name, SafetensorsHeader header);
  void Check(const SafetensorInfo& info) const;

  std::string name_;
  SafetensorsHeader header_;
  std::vector<size_t> by_name_;  // indices of tensors, sorted by name
  std::unique_ptr<Data, Free> data_;
};

// A tensor to write; `data` is not copied and must hold shape x dtype bytes.
struct SafetensorView {
  std::string name;                  // UTF-8, once in a file
  std::string dtype;                 // "F32", "I64", ...; see SafetensorDtypeBits
  std::vector<int64_t> shape;        // empty for a scalar
  absl::Span<const std::byte> data;  // row-major, little-endian
};

// Writes a file piece by piece, for tensors that are not all in host memory at once.
//
//   SafetensorsWriter writer(path, metadata, infos);   // begin and end of infos are ignored
//   for (const SafetensorInfo& info : writer.tensors()) writer.Append(BytesOf(info.name));
//   writer.Commit();
//
// The file appears at Commit(), whole, or not at all (atomic_file.h). One thread per writer.
class SafetensorsWriter {
 public:
  // Creates the temporary file and writes the header. Throws kInvalidArgument for tensors the
  // format cannot hold (unknown dtype, size overflow, name twice, not UTF-8), else as AtomicFile.
  SafetensorsWriter(const std::string& path, std::map<std::string, std::string> metadata,
                    std::vector<SafetensorInfo> tensors);

  // In the order in which Append() wants their bytes, with the offsets they will have.
  const std::vector<SafetensorInfo>& tensors() const { return header_.tensors; }

  // Any piece of the data, in order. Throws kInvalidArgument when there is more than was declared.
  void Append(absl::Span<const std::byte> bytes);
  // Throws kFailedPrecondition when bytes are missing.
  void Commit();

 private:
  std::string name_;
  SafetensorsHeader header_;
  uint64_t written_ = 0;
  AtomicFile file_;
};

// All at once. Also throws kInvalidArgument when a span's length is not shape x dtype; then no file
// is touched.
void WriteSafetensors(const std::string& path, std::map<std::string, std::string> metadata,
                      absl::Span<const SafetensorView> tensors);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_SAFETENSORS_FILE_H_
