// Evaluations of parts of the data, one on each rank, to that of the whole on all of them.
#ifndef TIDEPOOL_NN_DISTRIBUTED_MERGE_EVALUATIONS_H_
#define TIDEPOOL_NN_DISTRIBUTED_MERGE_EVALUATIONS_H_

#include "tidepool/eval/base_evaluation.h"
#include "tidepool/nn/distributed/communicator.h"

namespace tidepool::nn {

// Each rank's, of the same kind and configuration, becomes what all of them together are, to the
// bits of one pass over all. Collective. Memory meanwhile: every rank's state (Serialize()), each
// as long as the longest. Throws as MergeSerialized; then the evaluation has what the ranks before
// the one that did not fit had.
void MergeEvaluations(Communicator& communicator, BaseEvaluation& evaluation);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_MERGE_EVALUATIONS_H_
