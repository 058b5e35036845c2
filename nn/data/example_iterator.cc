#include "tidepool/nn/data/example_iterator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dtype.h"

namespace tidepool::nn {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014). Our own, because the standard's distributions differ
// between libraries and an order must not.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// Examples of a batch of all ranks.
int64_t AllRanks(const Batching& batching) {
  return batching.together.value_or(batching.batch_size * batching.ranks);
}

int64_t CheckedSize(const Batching& batching, int64_t count) {
  const auto refuse = [](const auto&... parts) {
    ThrowInvalidArgument(absl::StrCat("ExampleIterator: found ", parts...));
  };
  if (batching.batch_size < 1) refuse("batch size ", batching.batch_size, ", expected at least 1");
  if (batching.rank < 0 || batching.rank >= batching.ranks) {
    refuse("rank ", batching.rank, " of ", batching.ranks, ", expected 0 to ranks - 1");
  }
  if (batching.batch_size > (int64_t{1} << 62) / batching.ranks) {
    refuse("batch size ", batching.batch_size, " for ", batching.ranks,
           " ranks, expected a product up to 2^62");
  }
  if (batching.together.has_value() &&
      (*batching.together < batching.ranks || *batching.together > int64_t{1} << 62)) {
    refuse(*batching.together, " examples together for ", batching.ranks,
           " ranks, expected at least one for each, and up to 2^62");
  }
  constexpr int64_t kMost = ExampleIterator<DataSet>::kMostExamples;
  if (count < 0 || count > kMost) refuse(count, " examples, expected 0 to ", kMost);
  const int64_t all = AllRanks(batching), rest = count % all;
  switch (batching.last) {
    case LastBatch::kDrop:
      return count / all;
    case LastBatch::kFill:
      if (count == 0) refuse("no examples to fill batches with, expected at least 1");
      break;
    case LastBatch::kKeep:
      if (rest != 0 && rest < batching.ranks) {
        refuse(rest, " of ", count, " examples in the last batch of ", batching.ranks,
               " ranks, expected at least one for each, or LastBatch::kDrop or kFill");
      }
      break;
  }
  return count / all + (rest != 0 ? 1 : 0);
}

}  // namespace

template <typename Set>
ExampleIterator<Set>::ExampleIterator(std::shared_ptr<const Examples<Set>> examples,
                                      const Batching& batching)
    : examples_(std::move(examples)), batching_(batching) {
  if (examples_ == nullptr)
    ThrowInvalidArgument("ExampleIterator: found no examples, expected some source of them");
  count_ = examples_->count();
  size_ = CheckedSize(batching_, count_);
  StartEpoch(batching.epoch);
}

template <typename Set>
void ExampleIterator<Set>::StartEpoch(uint64_t epoch) {
  if (batching_.seed.has_value()) {
    order_.resize(static_cast<size_t>(count_));
    std::iota(order_.begin(), order_.end(), 0u);
    SplitMix64 random(*batching_.seed * 0xD1342543DE82EF95u + epoch + 1);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Next() % i]);
  }
  epoch_ = epoch;
  this->Seek(0);
}

template <typename Set>
void ExampleIterator<Set>::Shuffle(uint64_t seed, uint64_t epoch) {
  batching_.seed = seed;
  StartEpoch(epoch);
}

template <typename Set>
ChosenExamples ExampleIterator<Set>::ExamplesOf(int64_t index) const {
  if (index < 0 || index >= size_) {
    ThrowInvalidArgument(
        absl::StrCat("ExampleIterator: found batch ", index, ", expected one of ", size_));
  }
  const int64_t all = AllRanks(batching_), begin = index * all;
  const int64_t together = batching_.last == LastBatch::kFill ? all : std::min(all, count_ - begin);
  // together * rank / ranks, without the product.
  const auto place = [&](int64_t rank) {
    return together / batching_.ranks * rank + together % batching_.ranks * rank / batching_.ranks;
  };
  const int64_t from = place(batching_.rank);
  return {order_, count_, begin + from, place(batching_.rank + 1) - from};
}

template <typename Set>
Set ExampleIterator<Set>::Make(int64_t index, const std::stop_token& stop) const {
  return examples_->Make(ExamplesOf(index), stop);
}

template class ExampleIterator<DataSet>;
template class ExampleIterator<MultiDataSet>;

// ---- arrays in memory ----

namespace {

// Dense, on the host, and of `examples` rows.
NDArray Rows(NDArray array, const char* what, int64_t examples) {
  if (!array.is_defined()) return array;
  array.CheckAlive("ArrayExamples", what);
  if (array.rank() < 1 || array.dim(0) != examples) {
    ThrowInvalidArgument(absl::StrCat("ArrayExamples: ", what, ": found shape ",
                                      array.shape().ToString(), ", expected ", examples,
                                      " examples as the first axis"));
  }
  array = array.To(Host());
  return array.is_dense() ? array : array.CopyTo(Place::Heap());
}

int64_t CountOf(const NDArray& features) {
  if (features.is_defined() && features.rank() > 0) return features.dim(0);
  ThrowInvalidArgument(
      "ArrayExamples: features: found no axis of examples, expected an array of at least one axis");
}

}  // namespace

NDArray GatherRows(const NDArray& array, const ChosenExamples& which) {
  if (!array.is_defined()) return {};
  const int64_t row = array.dim(0) == 0 ? 0 : array.NumElements() / array.dim(0);
  std::array<int64_t, kMaxRank> dims;
  std::copy_n(array.shape().dims(), array.rank(), dims.begin());
  dims[0] = which.size();
  NDArray rows(Shape(absl::MakeConstSpan(dims.data(), static_cast<size_t>(array.rank()))),
               array.dtype());
  VisitDType(array.dtype(), [&]<typename T>(T) {
    if (rows.NumElements() == 0) return;
    const T* from = array.data<T>();
    T* to = rows.mutable_data<T>();
    for (int64_t i = 0; i < which.size(); ++i, to += row) {
      std::memcpy(static_cast<void*>(to), from + which[i] * row,
                  static_cast<size_t>(row) * sizeof(T));
    }
  });
  return rows;
}

ArrayExamples::ArrayExamples(NDArray features, NDArray labels, NDArray features_mask,
                             NDArray labels_mask) {
  const int64_t examples = CountOf(features);
  features_ = Rows(std::move(features), "features", examples);
  labels_ = Rows(std::move(labels), "labels", examples);
  features_mask_ = Rows(std::move(features_mask), "features_mask", examples);
  labels_mask_ = Rows(std::move(labels_mask), "labels_mask", examples);
}

DataSet ArrayExamples::Make(const ChosenExamples& which, const std::stop_token&) const {
  DataSet batch(GatherRows(features_, which), GatherRows(labels_, which));
  batch.features_mask = GatherRows(features_mask_, which);
  batch.labels_mask = GatherRows(labels_mask_, which);
  return batch;
}

MultiArrayExamples::MultiArrayExamples(MultiDataSet arrays) : arrays_(std::move(arrays)) {
  const int64_t examples = CountOf(arrays_.features.empty() ? NDArray() : arrays_.features[0]);
  for (NDArray& array : arrays_.features) array = Rows(std::move(array), "features", examples);
  for (NDArray& array : arrays_.labels) array = Rows(std::move(array), "labels", examples);
  for (NDArray& array : arrays_.features_masks)
    array = Rows(std::move(array), "features_masks", examples);
  for (NDArray& array : arrays_.labels_masks)
    array = Rows(std::move(array), "labels_masks", examples);
}

MultiDataSet MultiArrayExamples::Make(const ChosenExamples& which, const std::stop_token&) const {
  MultiDataSet batch;
  for (const NDArray& array : arrays_.features) batch.features.push_back(GatherRows(array, which));
  for (const NDArray& array : arrays_.labels) batch.labels.push_back(GatherRows(array, which));
  for (const NDArray& array : arrays_.features_masks)
    batch.features_masks.push_back(GatherRows(array, which));
  for (const NDArray& array : arrays_.labels_masks)
    batch.labels_masks.push_back(GatherRows(array, which));
  return batch;
}

}  // namespace tidepool::nn
