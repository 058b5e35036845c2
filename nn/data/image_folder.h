// Images in folders, one folder for each class, as examples: PNG and JPEG files, decoded when a
// batch is made.
//
//   auto images = std::make_shared<ImageFolderExamples>("flowers",
//                                                       ImageFolderOptions{.channels = 3});
//   ExampleIterator<DataSet> batches(images, {.batch_size = 32, .seed = 1});
//   const Normalizer scale = Normalizer::ImageScale();
//   NormalizedIterator floats(batches, scale);
//   AsyncDataSetIterator ahead(floats, {.prefetch = 4, .producers = 4});   // four threads decode
//
// "flowers/rose/7.png" is of the class "rose". Classes are sorted by name and labelled from 0,
// files likewise, so that examples have the same numbers everywhere. Folders below those of
// classes, hidden files and files of other names than *.png, *.jpg and *.jpeg (of any case) are not
// looked at; what a file is, its first bytes say.
//
// Features are u8 [n, height, width, channels], decoded straight to where they lie, and labels i64
// [n]. All images are of one size, that of the first one unless options say otherwise; others are
// refused, not scaled.
//
// Errors: kNotFound and kPermissionDenied from errno, kDataLoss that names the file for what is no
// such image or of another size, kResourceExhausted for files, images and folders beyond the
// limits. Memory: names of files, and for each thread that makes a batch a file and some times its
// pixels.
#ifndef TIDEPOOL_NN_DATA_IMAGE_FOLDER_H_
#define TIDEPOOL_NN_DATA_IMAGE_FOLDER_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/png_image.h"

namespace tidepool::nn {

struct ImageFolderOptions {
  ImageSize size = {};                           // 0 x 0: the first image's
  int channels = 1;                              // 1: grey, 3: red, green, blue
  int64_t max_pixels = int64_t{1} << 26;         // of an image
  uint64_t max_file_bytes = uint64_t{64} << 20;  // of an image's file
  int64_t max_files = int64_t{1} << 26;          // and classes
};

// Batches as the head of this header says.
class ImageFolderExamples final : public Examples<DataSet> {
 public:
  // Lists the files and looks at the first one's header.
  explicit ImageFolderExamples(const std::string& folder, const ImageFolderOptions& options = {});

  int64_t count() const override { return static_cast<int64_t>(files_.size()); }
  DataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;

  // What labels are numbers of, the size that all images have, and the file of an example.
  const std::vector<std::string>& classes() const { return classes_; }
  ImageSize size() const { return options_.size; }
  // Throws kInvalidArgument unless 0 <= example < count().
  std::string PathOf(int64_t example) const;

 private:
  struct File {
    int32_t label = 0;
    std::string name;
  };
  std::string folder_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_IMAGE_FOLDER_H_
