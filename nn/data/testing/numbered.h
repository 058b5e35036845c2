// Batches that say which they are, for tests of iterators.
#ifndef TIDEPOOL_NN_DATA_TESTING_NUMBERED_H_
#define TIDEPOOL_NN_DATA_TESTING_NUMBERED_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/data_set_iterator.h"

namespace tidepool::nn {

inline DataSet Numbered(int64_t index) {
  return {Full({4, 3}, static_cast<double>(index)),
          Full({4}, static_cast<double>(index % 10), DType::kInt64)};
}

inline float NumberOf(const DataSet& batch) { return batch.features.At<float>({3, 2}); }
inline float NumberOf(const MultiDataSet& set) { return set.features[0].At<float>({3, 2}); }

// The same as a set of either kind: one of several arrays has another one beside each.
template <typename Set>
Set NumberedAs(int64_t index) {
  DataSet batch = Numbered(index);
  if constexpr (std::is_same_v<Set, DataSet>) {
    return batch;
  } else {
    const double beside = static_cast<double>(index) + 0.25;
    return {{std::move(batch.features), Full({4, 2}, beside)},
            {std::move(batch.labels), Full({4}, beside)}};
  }
}

// The same batches as a stream: one behind the other.
class Stream : public DataSetIterator {
 public:
  explicit Stream(int64_t count) : count_(count) {}
  void Reset() override { next_ = 0; }

 protected:
  std::optional<DataSet> NextBatch(const std::stop_token&) override {
    if (next_ == count_) return std::nullopt;
    return Numbered(next_++);
  }

 private:
  int64_t count_, next_ = 0;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_TESTING_NUMBERED_H_
