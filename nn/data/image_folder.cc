#include "tidepool/nn/data/image_folder.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/jpeg_image.h"

namespace tidepool::nn {
namespace {

namespace fs = std::filesystem;

// Names of what `wanted` accepts, sorted.
template <typename Wanted>
std::vector<std::string> List(const fs::path& folder, int64_t most, Wanted wanted) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name[0] == '.' || !wanted(*entry)) continue;
    if (static_cast<int64_t>(names.size()) == most) {
      ThrowResourceExhausted(absl::StrCat("image folder ", OneLine(folder.string()),
                                          ": found more than ", most,
                                          " entries, expected at most as many"));
    }
    names.push_back(std::move(name));
  }
  if (error) ThrowErrno(error.value(), absl::StrCat("image folder ", OneLine(folder.string())));
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFolder(const fs::directory_entry& entry) {
  std::error_code ignored;  // what cannot be looked at is no class
  return entry.is_directory(ignored);
}

bool IsImageName(const fs::directory_entry& entry) {
  if (IsFolder(entry)) return false;
  const std::string extension = absl::AsciiStrToLower(entry.path().extension().string());
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

std::string Content(const std::string& path, uint64_t most) {
  FileReader file(path);
  if (file.size() > most) {
    ThrowResourceExhausted(
        absl::StrCat(file.name(), ": found ", file.size(), " bytes, expected at most ", most));
  }
  std::string bytes(file.size(), '\0');
  file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()),
                   "image");
  return bytes;
}

// Calls what is for the kind of file that `bytes` begin as; errors are the file's.
template <typename Png, typename Jpeg>
auto ByKind(const std::string& path, std::string_view bytes, Png png, Jpeg jpeg) {
  try {
    if (LooksLikePng(bytes)) return png(bytes);
    if (LooksLikeJpeg(bytes)) return jpeg(bytes);
  } catch (const Error& error) {
    ThrowDataLoss(absl::StrCat(OneLine(path), ": ", error.message()));
  }
  ThrowDataLoss(absl::StrCat(
      OneLine(path), ": byte 0: found neither a PNG nor a JPEG file, expected one of them"));
}

}  // namespace

ImageFolderExamples::ImageFolderExamples(const std::string& folder,
                                         const ImageFolderOptions& options)
    : folder_(folder), options_(options) {
  if (options.channels != 1 && options.channels != 3) {
    ThrowInvalidArgument(
        absl::StrCat("image folder: found ", options.channels, " channels, expected 1 or 3"));
  }
  if (options.size != ImageSize() && (options.size.height < 1 || options.size.width < 1)) {
    ThrowInvalidArgument(absl::StrCat("image folder: found a size of ", options.size.height, " x ",
                                      options.size.width,
                                      ", expected at least one pixel each way"));
  }
  classes_ = List(folder, options.max_files, &IsFolder);
  for (size_t i = 0; i < classes_.size(); ++i) {
    const auto left = options.max_files - static_cast<int64_t>(files_.size());
    for (std::string& name : List(fs::path(folder) / classes_[i], left, &IsImageName)) {
      files_.push_back({static_cast<int32_t>(i), std::move(name)});
    }
  }
  if (files_.empty()) {
    ThrowNotFound(absl::StrCat("image folder ", OneLine(folder), ": found no images in ",
                               classes_.size(),
                               " folders, expected *.png, *.jpg or *.jpeg in one for each class"));
  }
  const std::string first = PathOf(0);
  if (options_.size == ImageSize()) {
    options_.size = ByKind(first, Content(first, options.max_file_bytes), &PngSizeOf, &JpegSizeOf);
  }
  const auto [height, width] = options_.size;
  if (height < 1 || width < 1 || height > options.max_pixels / width) {
    ThrowResourceExhausted(absl::StrCat(OneLine(first), ": found an image of ", height, " x ",
                                        width, " pixels, expected 1 to ", options.max_pixels,
                                        " of them"));
  }
}

std::string ImageFolderExamples::PathOf(int64_t example) const {
  if (example < 0 || example >= count()) {
    ThrowInvalidArgument(
        absl::StrCat("image folder: found example ", example, ", expected one of ", count()));
  }
  const File& file = files_[static_cast<size_t>(example)];
  return (fs::path(folder_) / classes_[static_cast<size_t>(file.label)] / file.name).string();
}

DataSet ImageFolderExamples::Make(const ChosenExamples& which, const std::stop_token& stop) const {
  const ImageSize size = options_.size;
  DataSet batch{NDArray({which.size(), size.height, size.width, options_.channels}, DType::kUInt8),
                NDArray({which.size()}, DType::kInt64)};
  const auto bytes = static_cast<size_t>(size.height * size.width * options_.channels);
  uint8_t* pixels = batch.features.mutable_data<uint8_t>();
  int64_t* labels = batch.labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < which.size() && !stop.stop_requested(); ++i, pixels += bytes) {
    const std::string path = PathOf(which[i]);
    const absl::Span<uint8_t> to(pixels, bytes);
    ByKind(
        path, Content(path, options_.max_file_bytes),
        [&](std::string_view png) { DecodePng(png, size, options_.channels, to); },
        [&](std::string_view jpeg) { DecodeJpeg(jpeg, size, options_.channels, to); });
    labels[i] = files_[static_cast<size_t>(which[i])].label;
  }
  return batch;
}

}  // namespace tidepool::nn
