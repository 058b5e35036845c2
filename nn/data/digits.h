// Labelled grey images: MNIST and every data set published in its four files.
//
//   ImageFolder digits = LoadImageFolder("examples/data/mnist");
//   digits.train.pixels;   // [count, height, width], 0..255, row-major
//
// Nothing is scaled or shuffled here. Threads: pure functions. Memory: the pixels, plus the
// compressed file while it is read.
#ifndef TIDEPOOL_NN_DATA_DIGITS_H_
#define TIDEPOOL_NN_DATA_DIGITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/nn/data/idx_file.h"

namespace tidepool {

struct LabelledImages {
  int64_t count = 0;            // of images
  int64_t height = 0;           // pixels
  int64_t width = 0;            // pixels
  std::vector<uint8_t> pixels;  // [count, height, width]
  std::vector<uint8_t> labels;  // [count], each below classes
  int classes = 0;              // 10 of digits
  MemoryCharge charge = {};     // pixels and labels on the ledger, when read from files
};

// The two parts of a data set.
struct ImageFolder {
  LabelledImages train;  // to learn from
  LabelledImages test;   // to measure by
};

// Reads an IDX file of images (rank 3) and one of labels (rank 1), plain or gzip. `classes` is from
// 1 to 256. Throws kDataLoss when the counts differ, a label is not below `classes` (naming file,
// index, found and expected), or there are no images or pixels; else as idx_file.h, for more than
// `max_bytes` of pixels too. All but pixels, the labels with them, is looked at before pixels are
// read. `check` sees [count, height, width] then and throws for images that are not wanted.
LabelledImages ReadLabelledImages(const std::string& images_path, const std::string& labels_path,
                                  int classes, uint64_t max_bytes = kMaxIdxBytes,
                                  IdxDimsCheck check = AnyIdxDims);

// Finds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte in `folder`, each as it is or with ".gz"; the plain one is preferred.
// Throws kNotFound that names every path tried, and kDataLoss also when the sizes of training and
// test images differ.
ImageFolder LoadImageFolder(const std::string& folder, int classes = 10,
                            uint64_t max_bytes = kMaxIdxBytes);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_DIGITS_H_
