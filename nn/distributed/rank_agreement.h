// What ranks must have in common, looked at before it can do harm. Collective: all ranks call them.
#ifndef TIDEPOOL_NN_DISTRIBUTED_RANK_AGREEMENT_H_
#define TIDEPOOL_NN_DISTRIBUTED_RANK_AGREEMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

// Texts by what they are about: "updater", "adam, learning rate 0.001 ...".
using RankFacts = std::vector<std::pair<std::string, std::string>>;

// Of the program, the network, its parameters, and what SettingsOf says; not of values.
RankFacts FactsOf(Trainer& trainer);
// Of what a program may set at any time: the updater, its groups of parameters and gradient scale,
// the loss and its scale. Numbers are told to the last bit; a loss that is a function of the
// program's is no more than that.
RankFacts SettingsOf(Trainer& trainer);
// Of the data and its order: ranks that disagree take parts of other batches. HashOfBytes of what examples
// are made of is a fact as well, for who has it in memory.
RankFacts FactsOf(const DataPosition& at);
uint64_t HashOfBytes(absl::Span<const std::byte> bytes);

// Throws on all ranks where one has others than rank 0: there kFailedPrecondition, the first that
// differs, found and expected; elsewhere kAborted, which rank it is.
void CheckFacts(Communicator& communicator, const RankFacts& facts);
// The same of SettingsOf, in two short collectives where all have the same.
void CheckSettings(Communicator& communicator, Trainer& trainer);

// Throws kFailedPrecondition on all ranks where the bytes of what the network computes by differ,
// which they do not unless a rank's memory or processor is other than it should be. `where`:
// "behind step 20".
void CheckSameParameters(Communicator& communicator, const Network& network,
                         const std::string& where);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_RANK_AGREEMENT_H_
