// Examples of NumPy's files, read as they are asked for: of files that are larger than memory
// nothing is held but batches.
//
//   auto examples = std::make_shared<NpyExamples>(NpyFiles{"features.npy", "labels.npy"});
//   ExampleIterator<DataSet> batches(examples, {.batch_size = 64, .seed = 7});
//   AsyncDataSetIterator ahead(batches, {.prefetch = 4, .producers = 2});
//
// The first axis is that of examples. Values are copied into batches, whatever their type
// (npy_format.h); f64 features need a network of that type. What fits into memory, and .npz files,
// are arrays of ReadNpy and ReadNpz for ArrayExamples.
//
// Errors: as ReadNpy, and kInvalidArgument naming the files where an array has no first axis or
// numbers of examples differ; kUnimplemented for Fortran order, in which no example is in one piece;
// out of Make() kDataLoss for a file that has become shorter. Files stay open. Threads: any number
// in Make(). Cost: a system call for each run of neighbours, which a shuffled order has hardly any
// of.
#ifndef TIDEPOOL_NN_DATA_NPY_EXAMPLES_H_
#define TIDEPOOL_NN_DATA_NPY_EXAMPLES_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/example_iterator.h"

namespace tidepool::nn {

// Paths of the files whose rows are examples.
struct NpyFiles {
  std::string features;                            // [examples, ...]
  std::string labels, features_mask, labels_mask;  // empty: none
};

class NpyExamples final : public Examples<DataSet> {
 public:
  explicit NpyExamples(const NpyFiles& files);
  ~NpyExamples() override;
  int64_t count() const override { return count_; }
  DataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;

 private:
  struct File;
  std::unique_ptr<const File> Open(const std::string& path);
  static NDArray Rows(const File* file, const ChosenExamples& which, const std::stop_token& stop);

  std::unique_ptr<const File> features_, labels_, features_mask_, labels_mask_;
  int64_t count_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_NPY_EXAMPLES_H_
