#include "tidepool/nn/data/batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

std::vector<Batch> Batch::Split(int64_t parts, bool even) const {
  if (!features.is_defined() || !labels.is_defined()) {
    ThrowFailedPrecondition(absl::StrCat("Batch::Split: found no ",
                                         features.is_defined() ? "labels" : "features",
                                         ", expected a batch that is not closed"));
  }
  features.CheckAlive("split", "features");
  labels.CheckAlive("split", "labels");
  const int64_t examples = size();
  if (parts < 1) {
    ThrowInvalidArgument(
        absl::StrCat("Batch::Split: found ", parts, " parts, expected at least 1"));
  }
  if (even && examples % parts != 0) {
    ThrowInvalidArgument(absl::StrCat("Batch::Split: found ", examples, " examples for ", parts,
                                      " even parts, expected a multiple of ", parts));
  }
  // Not (examples + parts - 1) / parts: `parts` may be as large as it gets.
  const int64_t most = examples / parts + (examples % parts != 0 ? 1 : 0);
  std::vector<Batch> batches;
  for (int64_t begin = 0; begin < examples; begin += most) {
    const int64_t end = std::min(begin + most, examples);
    Batch& part = batches.emplace_back(features.Slice(0, begin, end), labels.Slice(0, begin, end));
    if (features_mask.is_defined()) part.features_mask = features_mask.Slice(0, begin, end);
    if (labels_mask.is_defined()) part.labels_mask = labels_mask.Slice(0, begin, end);
    part.earlier_leases = earlier_leases;
    part.lease = lease;
  }
  return batches;
}

}  // namespace tidepool::nn
