// How much memory a network takes, before it runs.
//
//   MemoryReport report = ReportMemory(network, {.batch = 64});
//   std::puts(report.ToString().c_str());
//
// Found by a dry run: steps and requests of the batch are done with everything but the kernels
// (KernelsOffScope), in workspaces of the report's own, so that what is counted is what the very
// code of the step asks for, and plans are those that it will make. Parameters, gradients, learned
// plans and random numbers stay as they are. Not counted: records (tapes, plans, some hundred bytes
// a call), what kernels keep between calls (packed weights), and batches that wait elsewhere. What is measured
// is within 2 % and 16 KB of that: of networks that take a few hundred KB or less it says up to so much more.
#ifndef TIDEPOOL_NN_MEMORY_REPORT_H_
#define TIDEPOOL_NN_MEMORY_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/nn/layer_workspace_manager.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// Of what the report is.
struct MemoryReportOptions {
  int64_t batch = 1;  // examples
  // Arrays as large as the parameters that the updater keeps: 0 of SGD, 1 of Nesterov's, 2 of Adam.
  int updater_arrays = 2;
  // Shape of an example's labels and their type, one for each array that the loss takes.
  std::vector<InputConfig> labels = {{"label", {}, DType::kInt64}};
};

// A step or a request.
struct PhaseMemory {
  WorkspaceMode mode = WorkspaceMode::kEnabled;  // of its workspace
  std::vector<LayerUse> layers;   // requests by layer and type; "loss" is what is outside of layers
  int64_t input_bytes = 0;        // the batch
  int64_t lower_bound_bytes = 0;  // most bytes that are alive at once
  int64_t planned_bytes = 0;  // the planned peak, or what bump workspaces learned; kNone: the bound
  int64_t workspace_bytes =
      0;  // what its workspaces take for that, in whole pages, with their records and the tape's. kNone: what arrays take
};

struct MemoryReport {
  // Of which network, and for how many examples.
  std::string network;
  int64_t batch = 0;
  int64_t parameter_bytes = 0;      // with what layers keep beside them, and padding
  int64_t gradient_bytes = 0;       // of the parameters, kept between steps
  int64_t updater_bytes = 0;        // of its arrays
  PhaseMemory training, inference;  // of a step and of a request

  // All that is there at once; networks have their gradients in inference too.
  int64_t training_bytes() const {
    return parameter_bytes + gradient_bytes + updater_bytes + training.workspace_bytes;
  }
  // The same without a trainer.
  int64_t inference_bytes() const {
    return parameter_bytes + gradient_bytes + inference.workspace_bytes;
  }

  // A table for people.
  std::string ToString() const;
  std::string ToJson() const;  // with all numbers, for other programs: nothing here reads it
};

// Throws kInvalidArgument for a batch below 1 and fewer arrays than none, kFailedPrecondition while a workspace of the network
// is open, and what the layers do. Memory: as much as the report says, of which on the host no page
// is touched, but for those of integers, inputs and labels, which are zeros in arrays of up to 16 MiB and anything in larger ones: a layer
// of one's own that looks at elements on the host finds them so. Threads: as ComputeGradients and Infer.
MemoryReport ReportMemory(Network& network, const MemoryReportOptions& options);

// A batch whose training (or inference) takes at most `budget_bytes`, at most `limit`: the largest, where more examples never take less;
// 0: not even one example fits. More examples may take less, as their plan lies closer or a kernel takes less scratch. So what is
// promised is: it fits, one more does not, nor do the seven behind that, nor any of 16 sizes evenly from there to twice as many. What
// cannot be at all (arrays larger than there can be) does not fit. The limit itself is told where still more would fit.
// Cost: a dry run of each size tried, some 2 log2(batch) + 24 where nothing jumps; throws as ReportMemory.
int64_t LargestBatch(Network& network, const MemoryReportOptions& options, int64_t budget_bytes,
                     bool training = true, int64_t limit = 1 << 16);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_MEMORY_REPORT_H_
