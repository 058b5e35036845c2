#include "tidepool/ndarray/io/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/safetensors_format.h"

namespace tidepool {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::align_val_t kDataAlignment{64};

void RequireLength(uint64_t file_bytes, const std::string& name) {
  if (file_bytes < kSafetensorsLengthBytes) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: header length: found a file of ", file_bytes,
                               " bytes, expected at least ", kSafetensorsLengthBytes));
  }
}

}  // namespace

// Where the bytes are: in a file, in memory, or both.
struct SafetensorsReader::Data {
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kDataAlignment); }
  };

  std::byte* Hold(uint64_t size) {
    MemoryCharge room(MemoryKind::kAllocated, static_cast<int64_t>(size));
    bytes.reset(static_cast<std::byte*>(::operator new(size, kDataAlignment)));
    charge = std::move(room);
    return bytes.get();
  }

  std::unique_ptr<FileReader> file;
  uint64_t begin = 0;  // of the data in the file
  std::once_flag is_held;
  MemoryCharge charge;  // of bytes
  std::unique_ptr<std::byte, Free> bytes;
};

void SafetensorsReader::Free::operator()(Data* data) const { delete data; }

SafetensorsReader::SafetensorsReader(std::string name, SafetensorsHeader header)
    : name_(std::move(name)),
      header_(std::move(header)),
      by_name_(header_.tensors.size()),
      data_(new Data()) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [this](size_t a, size_t b) {
    return header_.tensors[a].name < header_.tensors[b].name;
  });
}

SafetensorsReader SafetensorsReader::Open(const std::string& path) {
  auto opened = std::make_unique<FileReader>(path);
  FileReader& file = *opened;
  RequireLength(file.size(), file.name());
  unsigned char prefix[kSafetensorsLengthBytes];
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(prefix), sizeof(prefix)),
                   "header length");
  const uint64_t length = ParseSafetensorsHeaderLength(prefix, file.size(), file.name());
  std::string json(length, '\0');
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(json.data()), json.size()),
                   "header");
  SafetensorsReader reader(
      file.name(),
      ParseSafetensorsHeader(json, file.size() - kSafetensorsLengthBytes - length, file.name()));
  reader.data_->begin = kSafetensorsLengthBytes + length;
  reader.data_->file = std::move(opened);
  return reader;
}

SafetensorsReader SafetensorsReader::Parse(absl::Span<const std::byte> bytes,
                                           const std::string& name) {
  RequireLength(bytes.size(), name);
  const uint64_t length = ParseSafetensorsHeaderLength(
      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), name);
  const auto json = bytes.subspan(kSafetensorsLengthBytes, length);
  const auto data = bytes.subspan(kSafetensorsLengthBytes + length);
  SafetensorsReader reader(
      name, ParseSafetensorsHeader(
                absl::string_view(reinterpret_cast<const char*>(json.data()), json.size()),
                data.size(), name));
  std::call_once(reader.data_->is_held, [&] {
    std::byte* const held = reader.data_->Hold(data.size());
    if (!data.empty()) std::memcpy(held, data.data(), data.size());
  });
  return reader;
}

const SafetensorInfo* SafetensorsReader::FindOrNull(absl::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name, [this](size_t index, absl::string_view wanted) {
        return absl::string_view(header_.tensors[index].name) < wanted;
      });
  if (found == by_name_.end() || header_.tensors[*found].name != name) return nullptr;
  return &header_.tensors[*found];
}

const SafetensorInfo& SafetensorsReader::Find(absl::string_view name) const {
  if (const SafetensorInfo* info = FindOrNull(name)) return *info;
  constexpr size_t kShown = 8;
  std::string message =
      absl::StrCat(name_, ": tensor \"", OneLine(std::string(name)),
                   "\": found no such tensor, expected one of ", tensors().size(), ":");
  for (size_t i = 0; i < std::min(kShown, by_name_.size()); ++i) {
    absl::StrAppend(&message, " ", OneLine(header_.tensors[by_name_[i]].name.substr(0, 120)));
  }
  if (by_name_.size() > kShown) message += " ...";
  ThrowNotFound(std::move(message));
}

void SafetensorsReader::Check(const SafetensorInfo& info) const {
  // One of the list itself, as nearly always.
  const std::vector<SafetensorInfo>& all = header_.tensors;
  if (std::less_equal<>()(all.data(), &info) && std::less<>()(&info, all.data() + all.size()))
    return;
  const SafetensorInfo& expected = Find(info.name);
  const auto refuse = [&](const char* field, const std::string& found, const std::string& in_file) {
    ThrowInvalidArgument(absl::StrCat(name_, ": tensor ", ShownName(info), ": ", field, ": found ",
                                      found, ", expected ", in_file, ", as in the file"));
  };
  const auto offsets = [](const SafetensorInfo& of) {
    return absl::StrCat("[", of.begin, ",", of.end, "]");
  };
  const auto shape = [](const SafetensorInfo& of) {
    return absl::StrCat("[", absl::StrJoin(of.shape, ","), "]");
  };
  if (info.begin != expected.begin || info.end != expected.end)
    refuse("data_offsets", offsets(info), offsets(expected));
  if (info.dtype != expected.dtype) refuse("dtype", OneLine(info.dtype), expected.dtype);
  if (info.shape != expected.shape) refuse("shape", shape(info), shape(expected));
}

void SafetensorsReader::Read(const SafetensorInfo& info, uint64_t begin,
                             absl::Span<std::byte> to) const {
  Check(info);
  if (begin > info.bytes() || to.size() > info.bytes() - begin) {
    ThrowInvalidArgument(absl::StrCat(name_, ": tensor ", ShownName(info), ": found ", to.size(),
                                      " bytes to read from byte ", begin, " on, expected those of ",
                                      info.bytes()));
  }
  if (to.empty()) return;
  if (data_->file == nullptr) {
    std::memcpy(to.data(), data_->bytes.get() + info.begin + begin, to.size());
  } else {
    data_->file->ReadExactlyAt(data_->begin + info.begin + begin, to, "data");
  }
}

absl::Span<const std::byte> SafetensorsReader::data(const SafetensorInfo& info) const {
  Check(info);
  std::call_once(data_->is_held, [this] {
    std::byte* const held = data_->Hold(header_.data_bytes);
    data_->file->ReadExactlyAt(data_->begin, absl::MakeSpan(held, header_.data_bytes), "data");
  });
  return absl::MakeConstSpan(data_->bytes.get() + info.begin, info.bytes());
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::map<std::string, std::string> metadata,
                                     std::vector<SafetensorInfo> tensors)
    : name_(OneLine(path)),
      header_(LayOutSafetensors(std::move(metadata), std::move(tensors), name_)),
      file_(path) {
  file_.Append(SerializeSafetensorsHeader(header_, name_));
}

void SafetensorsWriter::Append(absl::Span<const std::byte> bytes) {
  if (bytes.size() > header_.data_bytes - written_) {
    ThrowInvalidArgument(absl::StrCat(name_, ": data: byte ", written_, ": found ", bytes.size(),
                                      " bytes to append, expected at most ",
                                      header_.data_bytes - written_));
  }
  file_.Append(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::Commit() {
  if (written_ != header_.data_bytes) {
    ThrowFailedPrecondition(absl::StrCat(name_, ": data: found ", written_,
                                         " bytes at commit, expected ", header_.data_bytes));
  }
  file_.Commit();
}

void WriteSafetensors(const std::string& path, std::map<std::string, std::string> metadata,
                      absl::Span<const SafetensorView> tensors) {
  std::vector<SafetensorInfo> infos;
  infos.reserve(tensors.size());
  std::map<absl::string_view, absl::Span<const std::byte>> data;
  for (const SafetensorView& tensor : tensors) {
    infos.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    data.emplace(tensor.name, tensor.data);
  }
  const std::string name = OneLine(path);
  for (const SafetensorInfo& info : LayOutSafetensors({}, infos, name).tensors) {
    if (data.at(info.name).size() != info.bytes()) {
      ThrowInvalidArgument(absl::StrCat(name, ": tensor ", ShownName(info), ": data: found ",
                                        data.at(info.name).size(), " bytes, expected ",
                                        info.bytes(), " for its shape and dtype ", info.dtype));
    }
  }
  SafetensorsWriter writer(path, std::move(metadata), std::move(infos));
  for (const SafetensorInfo& info : writer.tensors()) writer.Append(data.at(info.name));
  writer.Commit();
}

}  // namespace tidepool
