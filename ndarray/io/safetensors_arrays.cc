#include "tidepool/ndarray/io/safetensors_arrays.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/io/safetensors_file.h"

namespace tidepool {
namespace {

// The format's names are ours in capitals.
std::string NameOf(DType dtype) { return absl::AsciiStrToUpper(DTypeName(dtype)); }

DType TypeOf(const std::string& path, const SafetensorInfo& info) {
  for (int i = 0; i < kDTypes; ++i) {
    if (NameOf(static_cast<DType>(i)) == info.dtype) return static_cast<DType>(i);
  }
  ThrowUnimplemented(absl::StrCat(OneLine(path), ": tensor ", ShownName(info), ": found type ",
                                  OneLine(info.dtype),
                                  ", expected F32, F64, F16, BF16, I8 to I64, U8 to U64 or BOOL"));
}

// The format has shapes of any rank, and of any size where another one is 0.
void CheckShape(const std::string& path, const SafetensorInfo& info) {
  const auto fail = [&](const std::string& expected) {
    ThrowUnimplemented(absl::StrCat(OneLine(path), ": tensor ", ShownName(info), ": shape: found ",
                                    ShownShape(info), ", expected ", expected));
  };
  if (info.shape.size() > kMaxRank) fail(absl::StrCat("rank 0 to ", kMaxRank));
  try {
    static_cast<void>(Shape(absl::Span<const int64_t>(info.shape)));
  } catch (const Error& error) {
    fail(absl::StrCat("a shape of an array: ", error.message()));
  }
}

constexpr uint64_t kPiece = uint64_t{4} << 20;  // on the way to a device

}  // namespace

void ReadSafetensor(const SafetensorsReader& reader, const SafetensorInfo& info, NDArray& array) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    ThrowInvalidArgument(absl::StrCat("read_safetensor: tensor ", ShownName(info), ": found ",
                                      found, ", expected ", expected));
  };
  array.CheckAlive("read_safetensor", "array");
  reader.Read(info, 0, {});  // nothing, of one of the reader's
  const uint64_t bytes = info.bytes();
  const auto width = static_cast<uint64_t>(DTypeBytes(array.dtype()));
  if (NameOf(array.dtype()) != info.dtype)
    refuse(absl::StrCat("an array of ", NameOf(array.dtype())), info.dtype);
  if (static_cast<uint64_t>(array.NumElements()) * width != bytes) {
    refuse(absl::StrCat("an array of ", array.NumElements(), " elements"),
           absl::StrCat(bytes / width));
  }
  if (!array.is_dense()) refuse("an array whose elements lie apart", "a dense one");
  if (bytes == 0) return;
  const bool is_bool = array.dtype() == DType::kBool;
  const auto read = [&](uint64_t begin, absl::Span<std::byte> to) {
    reader.Read(info, begin, to);
    // A bool of another value than 0 and 1 is not one.
    if (is_bool)
      std::transform(to.begin(), to.end(), to.begin(),
                     [](std::byte b) { return std::byte(b != std::byte{0}); });
  };
  if (array.device() == Host()) {
    const internal::LockedView view(array, array.dtype(), internal::LockedView::Side::kHost,
                                    /*writes=*/true, ViewContents::kOverwritten);
    return read(0, absl::MakeSpan(static_cast<std::byte*>(view.data()), bytes));
  }
  // As any other write to the array, which may have a copy on the host, or be looked at.
  const auto in_piece = static_cast<int64_t>(std::min(bytes, kPiece) / width);
  const NDArray all = array.Reshape({array.NumElements()});
  NDArray piece({in_piece}, array.dtype(), Place::Heap());
  for (int64_t begin = 0; begin < all.NumElements(); begin += in_piece) {
    const int64_t count = std::min(in_piece, all.NumElements() - begin);
    read(static_cast<uint64_t>(begin) * width,
         absl::MakeSpan(piece.raw_data(), static_cast<uint64_t>(count) * width));
    piece.MarkWritten();
    const NDArray from = piece.Slice(0, 0, count);
    NDArray to = all.Slice(0, begin, begin + count);
    Dispatch(OpCode::kCopy, {&from}, {&to});
  }
}

std::map<std::string, NDArray> ReadSafetensorsArrays(const std::string& path, Place place) {
  const SafetensorsReader reader = SafetensorsReader::Open(path);
  for (const SafetensorInfo& info : reader.tensors()) {  // before any is made
    TypeOf(path, info);
    CheckShape(path, info);
  }
  std::map<std::string, NDArray> arrays;
  for (const SafetensorInfo& info : reader.tensors()) {
    NDArray array(Shape(absl::Span<const int64_t>(info.shape)), TypeOf(path, info), place);
    ReadSafetensor(reader, info, array);
    arrays.emplace(info.name, std::move(array));
  }
  return arrays;
}

void WriteSafetensorsArrays(const std::string& path, const std::map<std::string, NDArray>& arrays,
                            const std::map<std::string, std::string>& metadata) {
  std::vector<NDArray> dense;
  std::vector<SafetensorView> views;
  for (const auto& [name, array] : arrays) {
    array.CheckAlive("write_safetensors", name.c_str());
    dense.push_back(array.is_dense() && array.device() == Host() ? array
                                                                 : array.CopyTo(Place::Heap()));
    const NDArray& kept = dense.back();
    const size_t bytes = static_cast<size_t>(kept.NumElements()) * DTypeBytes(kept.dtype());
    views.push_back({name, NameOf(kept.dtype()),
                     std::vector<int64_t>(kept.shape().dims(), kept.shape().dims() + kept.rank()),
                     absl::MakeConstSpan(kept.raw_data(), bytes)});
  }
  WriteSafetensors(path, metadata, views);
}

}  // namespace tidepool
