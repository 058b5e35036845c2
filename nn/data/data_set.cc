#include "tidepool/nn/data/data_set.h"

#include <utility>

#include "tidepool/memory/error.h"

namespace tidepool::nn {

MultiDataSet& MultiDataSet::operator=(MultiDataSet other) noexcept {
  std::swap(earlier_leases, other.earlier_leases);
  std::swap(lease, other.lease);
  std::swap(features, other.features);
  std::swap(labels, other.labels);
  std::swap(features_masks, other.features_masks);
  std::swap(labels_masks, other.labels_masks);
  return *this;
}

int64_t MultiDataSet::size() const {
  if (features.empty()) {
    ThrowFailedPrecondition("MultiDataSet::size: found no features, expected at least one array");
  }
  return features[0].dim(0);
}

void MultiDataSet::Close() {
  for (Arrays* arrays : {&features, &labels, &features_masks, &labels_masks}) arrays->clear();
  lease.Release();
  earlier_leases.clear();
}

}  // namespace tidepool::nn
