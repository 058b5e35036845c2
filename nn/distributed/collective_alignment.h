// Where ranks parted: the first collective that they did not all begin alike.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_
#define TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_

#include <cstdint>
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

// The last collective that one of the ranks has done and that nobody can do before all have come to it:
// those did that do not say where they are. `done`: by rank, a sequence number. Empty: there is none in
// the logs; else "all had come to collective 484 at step 141".
std::string LastOfAll(absl::Span<const std::optional<std::vector<CollectiveRecord>>> logs,
                      absl::Span<const int64_t> done);

// Records as text for another rank, and back: what is no such text is left out.
std::string FormatLog(absl::Span<const CollectiveRecord> log);
std::vector<CollectiveRecord> ParseLog(absl::string_view text);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COLLECTIVE_ALIGNMENT_H_
