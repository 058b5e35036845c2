#include "tidepool/nn/data/digits.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// The plain or the compressed file; "" if there is neither, with both added to `tried`.
std::string FindFile(const std::string& folder, const char* name, std::string& tried) {
  const std::string plain = (std::filesystem::path(folder) / name).string();
  for (const std::string& path : {plain, plain + ".gz"}) {
    std::error_code ignored;  // what cannot be looked at is reported when it is opened
    if (std::filesystem::exists(path, ignored) || ignored == std::errc::permission_denied)
      return path;
  }
  absl::StrAppend(&tried, tried.empty() ? "" : ", ", OneLine(plain), ", ", OneLine(plain), ".gz");
  return "";
}

}  // namespace

LabelledImages ReadLabelledImages(const std::string& images_path, const std::string& labels_path,
                                  int classes, uint64_t max_bytes, IdxDimsCheck check) {
  if (classes < 1 || classes > 256) {
    ThrowInvalidArgument(
        absl::StrCat(OneLine(labels_path), ": classes: found ", classes, ", expected 1 to 256"));
  }
  IdxFile labels;
  const auto read_labels = [&](int64_t images) {
    labels = ReadIdx(labels_path, 1, max_bytes, [&](absl::Span<const int64_t> dims) {
      if (dims[0] == images) return;
      ThrowDataLoss(absl::StrCat(OneLine(labels_path), ": byte 4: IDX dimensions: found ", dims[0],
                                 " labels, expected ", images, ", the images in ",
                                 OneLine(images_path)));
    });
    const auto wrong = std::find_if(labels.data.begin(), labels.data.end(),
                                    [classes](uint8_t label) { return label >= classes; });
    if (wrong == labels.data.end()) return;
    const auto index = wrong - labels.data.begin();
    ThrowDataLoss(absl::StrCat(OneLine(labels_path), ": byte ", 8 + index, ": label ", index,
                               ": found ", *wrong, ", expected 0..", classes - 1));
  };
  IdxFile images = ReadIdx(images_path, 3, max_bytes, [&](absl::Span<const int64_t> dims) {
    if (dims[0] == 0) {
      ThrowDataLoss(absl::StrCat(OneLine(images_path), ": byte 4: IDX dimensions: found ", dims[0],
                                 " images of ", dims[1], "x", dims[2],
                                 ", expected at least one image with pixels"));
    }
    check(dims);
    read_labels(dims[0]);
  });
  const MemoryTagScope tag("data set");
  MemoryCharge charge(MemoryKind::kAllocated,
                      static_cast<int64_t>(images.data.capacity() + labels.data.capacity()));
  return {.count = images.dims[0],
          .height = images.dims[1],
          .width = images.dims[2],
          .pixels = std::move(images.data),
          .labels = std::move(labels.data),
          .classes = classes,
          .charge = std::move(charge)};
}

ImageFolder LoadImageFolder(const std::string& folder, int classes, uint64_t max_bytes) {
  std::string tried;
  const std::string train_images = FindFile(folder, "train-images-idx3-ubyte", tried);
  const std::string train_labels = FindFile(folder, "train-labels-idx1-ubyte", tried);
  const std::string test_images = FindFile(folder, "t10k-images-idx3-ubyte", tried);
  const std::string test_labels = FindFile(folder, "t10k-labels-idx1-ubyte", tried);
  if (!tried.empty()) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(folder, ignored);
    ThrowNotFound(absl::StrCat("image folder ", OneLine(folder), ": found ",
                               is_folder ? "a folder without these files" : "no such folder",
                               ", expected one of each pair: ", tried));
  }
  ImageFolder result;
  result.train = ReadLabelledImages(train_images, train_labels, classes, max_bytes);
  const auto as_in_training = [&](absl::Span<const int64_t> dims) {
    if (dims[1] == result.train.height && dims[2] == result.train.width) return;
    ThrowDataLoss(absl::StrCat(OneLine(test_images), ": byte 8: IDX dimensions: found images of ",
                               dims[1], "x", dims[2], ", expected ", result.train.height, "x",
                               result.train.width, ", as in ", OneLine(train_images)));
  };
  result.test = ReadLabelledImages(test_images, test_labels, classes, max_bytes, as_in_training);
  return result;
}

}  // namespace tidepool
