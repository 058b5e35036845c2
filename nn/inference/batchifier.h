// Batchifiers: inputs of single requests together as one batch, and a batch's outputs apart.
//
// Threads: const functions may be called on any thread at once.
#ifndef TIDEPOOL_NN_INFERENCE_BATCHIFIER_H_
#define TIDEPOOL_NN_INFERENCE_BATCHIFIER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/manager/nd_list.h"

namespace tidepool::nn {

class Batchifier {
 public:
  virtual ~Batchifier() = default;
  // Array k of the result is made of array k of every input. At least one input. Throws
  // kInvalidArgument naming the input and array that do not fit the first one.
  virtual NDList Batchify(absl::Span<const NDList> inputs) const = 0;
  // Views of the batch's rows: `count` lists, rows without their batch axis.
  virtual std::vector<NDList> Unbatchify(const NDList& batch, int64_t count) const;
};

// Arrays of equal shapes, stacked along a new first axis. One input becomes a view.
class StackBatchifier final : public Batchifier {
 public:
  NDList Batchify(absl::Span<const NDList> inputs) const override;
};

// Arrays whose sizes differ along any axis, padded at their ends to the largest of each axis and
// stacked. With masks the result has, behind each padded array, its mask: bool [batch, size of the
// first axis], true where that input had elements.
class PadBatchifier final : public Batchifier {
 public:
  explicit PadBatchifier(double value = 0, bool masks = false) : value_(value), masks_(masks) {}
  NDList Batchify(absl::Span<const NDList> inputs) const override;

 private:
  double value_;
  bool masks_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_BATCHIFIER_H_
