// MultiNormalizer: a Normalizer for each input and output of a MultiDataSet that wants one.
//
//   MultiNormalizer scales({Normalizer::ImageScale(), Normalizer::Standardize()},   // inputs
//                          {std::nullopt, Normalizer::MinMax()});                   // outputs
//   scales.Fit(batches);                                       // one pass, then Reset()
//   NormalizedMultiIterator normalized(batches, scales);       // may be made ahead
//   model.notes["normalizer"] = scales.ToText();
//   scales.RevertLabels(1, predictions[1]);
//
// Arrays behind the last normalizer, and those that have none, stay as they are. Steps that the mask
// of an array leaves out do not count.
//
// Errors: as Normalizer, with the array in front ("labels 1: ..."); kInvalidArgument for a batch of
// fewer arrays than normalizers. Threads: const calls from any number at once.
#ifndef TIDEPOOL_NN_DATA_MULTI_NORMALIZER_H_
#define TIDEPOOL_NN_DATA_MULTI_NORMALIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/data/normalizer.h"

namespace tidepool::nn {

class MultiNormalizer {
 public:
  // By input or output; nothing: it stays as it is.
  using Normalizers = std::vector<std::optional<Normalizer>>;

  // Throws kInvalidArgument for one that was made with labels_too: outputs have their own.
  explicit MultiNormalizer(Normalizers features, Normalizers labels = {});

  // As Normalizer::Fit: an exception leaves what was fitted before.
  void Fit(MultiDataSetIterator& batches);
  // All of them are.
  bool is_fitted() const;

  // To all that have one. Arrays that have elements in common with one that is changed become arrays of
  // their own.
  void Apply(MultiDataSet& batch) const;
  // Of input or output `i`; nothing where that has no normalizer.
  void RevertFeatures(size_t i, NDArray& features) const;
  void RevertLabels(size_t i, NDArray& labels) const;

  // As Normalizer's.
  std::string ToText() const;
  static MultiNormalizer FromText(absl::string_view text);

 private:
  friend class NormalizedMultiIterator;
  // Apply() to a batch whose arrays others may have as well.
  void ApplyToBatch(MultiDataSet& batch) const;
  Normalizers features_, labels_;
};

// As NormalizedIterator.
class NormalizedMultiIterator final : public MultiDataSetIterator {
 public:
  // Throws kFailedPrecondition for normalizers that are not fitted.
  NormalizedMultiIterator(MultiDataSetIterator& base, const MultiNormalizer& normalizer);
  void Reset() override { base_.Reset(); }
  bool allows_prefetch() const override { return base_.allows_prefetch(); }
  bool goes_by_index() const override { return base_.goes_by_index(); }
  std::optional<int64_t> Claim() override { return base_.Claim(); }
  MultiDataSet Make(int64_t index, const std::stop_token& stop) const override;

 protected:
  std::optional<MultiDataSet> NextBatch(const std::stop_token& stop) override;

 private:
  MultiDataSetIterator& base_;
  const MultiNormalizer& normalizer_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_MULTI_NORMALIZER_H_
