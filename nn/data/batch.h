// A batch: features and labels of one step, and the manager that everything of the step belongs to.
//
// Closing it, at the latest in its destructor, frees its data and whatever was made of it in the step:
// activations and the loss; parameters, gradients and updater state stay. Move-only. A batch without a
// manager (made in a workspace the caller has opened, or on the heap) is its arrays.
#ifndef TIDEPOOL_NN_DATA_BATCH_H_
#define TIDEPOOL_NN_DATA_BATCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tidepool/memory/workspace/ring.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

struct Batch {
  Batch() = default;
  Batch(NDArray batch_features, NDArray batch_labels)
      : features(std::move(batch_features)), labels(std::move(batch_labels)) {}
  Batch(Batch&&) noexcept = default;
  // By swapping, so that what was here goes by the destructor: its arrays before their slot.
  Batch& operator=(Batch other) noexcept {
    std::swap(earlier_leases, other.earlier_leases);
    std::swap(lease, other.lease);
    std::swap(manager, other.manager);
    std::swap(features, other.features);
    std::swap(labels, other.labels);
    std::swap(features_mask, other.features_mask);
    std::swap(labels_mask, other.labels_mask);
    return *this;
  }
  ~Batch() = default;

  int64_t size() const { return features.dim(0); }  // examples
  // Idempotent.
  void Close() {
    features = NDArray();
    labels = NDArray();
    features_mask = NDArray();
    labels_mask = NDArray();
    if (manager.ownership()) manager.Close();
    lease.Release();
    earlier_leases.clear();
  }

  // At most `parts` batches of consecutive examples, in order: views of this one's arrays. Whose the arrays
  // are stays as it is: closing a batch that has a manager ends its parts; without one, the bytes live as
  // long as any part, which shares the leases of a batch made ahead: its slot is taken until all parts are
  // closed too. All have ceil(size / parts) examples but the last, which has what is left; with `even`
  // the size must be a multiple of `parts`. For workers that share a batch. Throws kInvalidArgument for parts below 1 or an uneven size; kFailedPrecondition when closed.
  std::vector<Batch> Split(int64_t parts, bool even = false) const;

  std::vector<SlotLease> earlier_leases;  // of the streams it went through before the last one
  SlotLease lease;    // of a batch made ahead (AsyncDataSetIterator): its arrays' slot
  NDManager manager;  // all of them before the arrays, which go first
  NDArray features;   // [batch, ...] f32
  NDArray labels;     // [batch] i64
  // [batch, length], of sequences (NetworkInputs); undefined: none.
  NDArray features_mask, labels_mask;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_BATCH_H_
