// Normalizer: brings features, and labels if asked, to a common scale that was learned from
// examples.
//
//   Normalizer normalizer = Normalizer::Standardize();
//   normalizer.Fit(batches);                                 // one pass, then Reset()
//   NormalizedIterator normalized(batches, normalizer);      // to train on; may be made ahead
//   model.notes["normalizer"] = normalizer.ToText();         // saved with the model or checkpoint
//   ...
//   Normalizer same = Normalizer::FromText(loaded.notes.at("normalizer"));
//
// There is a scale for each place of the last axis (a column, a channel, a feature of a time step),
// fitted over all others. What a mask leaves out does not count; its shape is what that of the array
// begins with: [n] or [n, 1] of examples, [n, length] of steps, the array's own of single values. A
// column that is left out altogether is taken to be 0. Numbers are double while they
// are fitted and applied, so that reverting gives the values back to rounding. A column that never
// varies becomes 0 (Standardize) or the lower bound (MinMax).
//
// Errors: kInvalidArgument for masks of other shapes, arrays of other columns than those fitted, or that are not numbers
// in f32, f64 or, of features, u8; kDataLoss while fitting, naming the column, for a value that is not
// finite and for a column so wide or narrow (beyond 1e140, below 1e-140) that numbers of its scale
// are no doubles; kFailedPrecondition before Fit. Threads: const calls from any number at once. Cost:
// one pass over the values; f32 and f64 in place, u8 becomes f32 in the current place.
#ifndef TIDEPOOL_NN_DATA_NORMALIZER_H_
#define TIDEPOOL_NN_DATA_NORMALIZER_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/data_set_iterator.h"

namespace tidepool::nn {

class Normalizer {
 public:
  // To mean 0 and standard deviation 1, by the deviation of all examples (not of a sample of them).
  static Normalizer Standardize(bool labels_too = false);
  // To `low` at the least value and, to rounding, `high` at the greatest one. Throws kInvalidArgument unless low
  // < high and both and their difference are finite.
  static Normalizer MinMax(double low = 0, double high = 1, bool labels_too = false);
  // Pixels from 0 to `greatest` to the range; there is nothing to fit. Throws as MinMax, and unless
  // `greatest` is finite and above 0 and (high - low) / greatest is a normal number.
  static Normalizer ImageScale(double low = 0, double high = 1, double greatest = 255);

  // From what is left of the epoch, which all ranks' examples should be in; then resets the
  // iterator. What was fitted before goes; an exception leaves it.
  void Fit(DataSetIterator& batches);
  bool is_fitted() const { return !features_.center.empty(); }

  // To features, and to labels where they were fitted too: to both or, where it throws, to none. Labels
  // that have elements in common with features, as autoencoders' may, become an array of their own.
  void Apply(DataSet& batch) const;
  // Also of predictions, which are like labels: to the units of the examples.
  void ApplyToFeatures(NDArray& features) const;
  void RevertFeatures(NDArray& features) const;
  void RevertLabels(NDArray& labels) const;

  // One line of ASCII that holds every number exactly. Throws kFailedPrecondition before Fit.
  std::string ToText() const;
  // Of untrusted text: throws kDataLoss for what ToText did not write, but for numbers of fewer digits.
  static Normalizer FromText(absl::string_view text);

 private:
  enum class Kind : uint8_t { kStandardize, kMinMax, kImageScale };
  // y = (x - center) * factor + offset; one column: of all.
  struct Columns {
    std::vector<double> center, factor, offset;
  };
  struct Sums;
  friend class MultiNormalizer;
  friend class NormalizedIterator;

  // Apply() to a batch whose arrays others may have as well.
  void ApplyToBatch(DataSet& batch) const;
  Normalizer(Kind kind, double low, double high, bool labels_too)
      : kind_(kind), low_(low), high_(high), labels_too_(labels_too) {}
  Columns ColumnsOf(const Sums& sums, const char* what) const;
  // Throws kInvalidArgument for what Change() refuses.
  int64_t WidthOf(const NDArray& array, const Columns& columns, const char* what) const;
  void Change(NDArray& array, const Columns& columns, const char* what, bool reverts) const;

  Kind kind_;
  double low_, high_;
  bool labels_too_;
  Columns features_, labels_;
};

// Batches of `base` after the normalizer. An array that nobody else has is changed in its place, else
// a copy of it: batches may be views of what the program has. Both outlive it.
class NormalizedIterator final : public DataSetIterator {
 public:
  // Throws kFailedPrecondition for a normalizer that is not fitted.
  NormalizedIterator(DataSetIterator& base, const Normalizer& normalizer);
  void Reset() override { base_.Reset(); }
  bool allows_prefetch() const override { return base_.allows_prefetch(); }
  bool goes_by_index() const override { return base_.goes_by_index(); }
  std::optional<int64_t> Claim() override { return base_.Claim(); }
  DataSet Make(int64_t index, const std::stop_token& stop) const override;

 protected:
  std::optional<DataSet> NextBatch(const std::stop_token& stop) override;

 private:
  DataSetIterator& base_;
  const Normalizer& normalizer_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_NORMALIZER_H_
