#include "tidepool/nn/distributed/merge_evaluations.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace tidepool::nn {

void MergeEvaluations(Communicator& communicator, BaseEvaluation& evaluation) {
  const auto ranks = static_cast<size_t>(communicator.size()),
             rank = static_cast<size_t>(communicator.rank());
  const std::string mine = evaluation.Serialize();
  std::vector<double> lengths(ranks);
  lengths[rank] = static_cast<double>(mine.size());
  communicator.AllGather(absl::MakeSpan(lengths), "lengths of evaluations");
  const auto longest = static_cast<size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::byte> states(longest * ranks);
  std::memcpy(states.data() + rank * longest, mine.data(), mine.size());
  communicator.AllGather(absl::MakeSpan(states), "evaluations");
  evaluation.Reset();
  for (size_t r = 0; r < ranks; ++r) {
    evaluation.MergeSerialized({reinterpret_cast<const char*>(states.data()) + r * longest,
                                static_cast<size_t>(lengths[r])});
  }
}

}  // namespace tidepool::nn
