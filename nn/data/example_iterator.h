// ExampleIterator: batches of examples that can be had in any order, shuffled anew in each epoch,
// shared out by rank.
//
//   // Or the images of a folder, the rows of a CSV file.
//   auto examples = std::make_shared<ArrayExamples>(features, labels);
//   ExampleIterator batches(examples, {.batch_size = 64, .seed = 7});
//
// The order of an epoch is a pure function of (seed, epoch, number of examples), the same on every
// machine. Of n ranks each has a part of the same batches: batch i of all ranks together is batch i
// of one rank with n times the batch size, cut in n consecutive parts, and all ranks have as many
// batches.
//
// Memory: 4 bytes for each example. Cost of an epoch's beginning: O(examples). Errors: of the
// examples, as they are.
#ifndef TIDEPOOL_NN_DATA_EXAMPLE_ITERATOR_H_
#define TIDEPOOL_NN_DATA_EXAMPLE_ITERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/nn/data/data_set_iterator.h"

namespace tidepool::nn {

// Examples of a batch, by their numbers in the source; valid as long as the epoch.
class ChosenExamples {
 public:
  // From place `begin` of `order`, round and round; without an order (empty) the numbers themselves
  // below `examples`.
  ChosenExamples(absl::Span<const uint32_t> order, int64_t examples, int64_t begin, int64_t count)
      : order_(order), examples_(examples), begin_(begin), count_(count) {}

  // How many, and the number of the i-th; i is not checked.
  int64_t size() const { return count_; }
  int64_t operator[](int64_t i) const {
    const int64_t place = (begin_ + i) % examples_;
    return order_.empty() ? place : order_[static_cast<size_t>(place)];
  }

 private:
  absl::Span<const uint32_t> order_;
  int64_t examples_, begin_, count_;
};

// A source whose examples have numbers from 0.
template <typename Set>
class Examples {
 public:
  virtual ~Examples() = default;
  virtual int64_t count() const = 0;  // always the same
  // A batch of those, in that order, made in the current place. Any number of threads at a time.
  // Sources that wait do so with `stop`.
  virtual Set Make(const ChosenExamples& which, const std::stop_token& stop) const = 0;
};

// What becomes of the examples that fill no whole batch (of all ranks together).
enum class LastBatch {
  kKeep,  // a smaller one; each rank's part differs by one at most
  kDrop,  // left out of this epoch
  kFill,  // filled with the first ones of the epoch's order, which are seen twice
};

// How examples become batches.
struct Batching {
  int64_t batch_size = 32;            // of each rank
  std::optional<uint64_t> seed;       // of the order; none: as they are
  LastBatch last = LastBatch::kKeep;  // what becomes of a batch that would not be whole
  uint64_t epoch = 0;                 // to begin with
  int rank = 0, ranks = 1;            // of a job, whose ranks share each batch
  // Examples of a batch of all ranks together, instead of batch_size for each; parts differ by one at
  // most. So batches, and with them the place in an epoch (Seek()), are the same for any number of
  // ranks.
  std::optional<int64_t> together;
};

template <typename Set>
class ExampleIterator : public IndexedIterator<Set> {
 public:
  // Places of an order have 32 bits.
  static constexpr int64_t kMostExamples = int64_t{1} << 32;

  // Throws kInvalidArgument for null examples, more than kMostExamples or, of kFill, none, a batch
  // size below 1 (`together`: below the ranks), a rank that is not from 0 to ranks - 1, a batch of
  // all ranks beyond 2^62, and of kKeep a last batch with fewer examples than ranks.
  explicit ExampleIterator(std::shared_ptr<const Examples<Set>> examples,
                           const Batching& batching = {});

  int64_t size() const override { return size_; }
  Set Make(int64_t index, const std::stop_token& stop) const override;
  // As above, of sources that need not be stopped.
  Set Make(int64_t index) const { return Make(index, std::stop_token()); }
  // Which ones; throws kInvalidArgument unless 0 <= index < size().
  ChosenExamples ExamplesOf(int64_t index) const;

  // The next epoch.
  void Reset() override { StartEpoch(epoch_ + 1); }
  uint64_t epoch() const { return epoch_; }
  // From its first batch; with Seek() any place of a training that is gone on with.
  void StartEpoch(uint64_t epoch);
  // The same of another seed.
  void Shuffle(uint64_t seed, uint64_t epoch);

 private:
  std::shared_ptr<const Examples<Set>> examples_;
  Batching batching_;
  int64_t count_ = 0;
  int64_t size_ = 0;
  uint64_t epoch_ = 0;
  std::vector<uint32_t> order_;
};

// Arrays in memory, the first axis being that of examples. Their values are copied into batches,
// whatever their type.
class ArrayExamples final : public Examples<DataSet> {
 public:
  // Masks may be undefined. Shares dense arrays on the host, and copies others there. Throws
  // kInvalidArgument where an array has no first axis or numbers of examples differ, naming it.
  ArrayExamples(NDArray features, NDArray labels, NDArray features_mask = {},
                NDArray labels_mask = {});
  int64_t count() const override { return features_.dim(0); }
  DataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;

 private:
  NDArray features_, labels_, features_mask_, labels_mask_;
};

// The same of any number of arrays.
class MultiArrayExamples final : public Examples<MultiDataSet> {
 public:
  // Throws as ArrayExamples, and for no features.
  explicit MultiArrayExamples(MultiDataSet arrays);
  int64_t count() const override { return arrays_.size(); }
  MultiDataSet Make(const ChosenExamples& which, const std::stop_token& stop) const override;

 private:
  MultiDataSet arrays_;
};

// Rows of `array`, which is dense and on the host, as a new array in the current place; undefined
// of an undefined one.
NDArray GatherRows(const NDArray& array, const ChosenExamples& which);

extern template class ExampleIterator<DataSet>;
extern template class ExampleIterator<MultiDataSet>;

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_EXAMPLE_ITERATOR_H_
