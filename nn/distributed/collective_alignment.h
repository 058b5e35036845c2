// Where ranks parted: the first collective that they did not all begin alike.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_
#define TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/nn/distributed/collective.h"

namespace tidepool::nn {

// By rank, Communicator::Log(); none where a rank did not say. One line; empty where those that are
// known do not differ.
std::string FirstDifference(absl::Span<const std::optional<std::vector<CollectiveRecord>>> logs);

// Records as text for another rank, and back: what is no such text is left out.
std::string FormatLog(absl::Span<const CollectiveRecord> log);
std::vector<CollectiveRecord> ParseLog(absl::string_view text);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_
