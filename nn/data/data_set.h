// DataSet and MultiDataSet: the arrays of one batch, as iterators give them.
//
// A DataSet is a Batch: features, labels and masks of a network with one input and one output. A
// MultiDataSet has any number of each, for NetworkInputs. Both hold the ring slots their arrays lie
// in, if they were made ahead, until they are closed or destroyed. Move-only. Threads: one at a
// time.
#ifndef TIDEPOOL_NN_DATA_DATA_SET_H_
#define TIDEPOOL_NN_DATA_DATA_SET_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/batch.h"

namespace tidepool::nn {

using DataSet = Batch;

struct MultiDataSet {
  using Arrays = absl::InlinedVector<NDArray, 2>;  // NetworkInputs'

  MultiDataSet() = default;
  MultiDataSet(Arrays set_features, Arrays set_labels)
      : features(std::move(set_features)), labels(std::move(set_labels)) {}
  MultiDataSet(MultiDataSet&&) noexcept = default;
  // By swapping, so that what was here goes by the destructor: its arrays before their slot.
  MultiDataSet& operator=(MultiDataSet other) noexcept;
  ~MultiDataSet() = default;

  // Examples; throws kFailedPrecondition without features.
  int64_t size() const;
  // Idempotent.
  void Close();

  std::vector<SlotLease> earlier_leases;  // of the iterators it went through before the last one
  SlotLease lease;
  Arrays features, labels;              // [batch, ...] each
  Arrays features_masks, labels_masks;  // [batch, length]; fewer or undefined: none
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_DATA_SET_H_
