// One side of a comparison of training steps, in a process of its own: requests and answers are
// lines, so that a conductor (train_benchmark) can let two sides run in turn.
//
//   hello                                   ok NAME; VERSIONS
//   begin MODEL BATCH THREADS UPDATER DATA  ok PARAMETERS      a new network; once per process
//   steps COUNT                             ok LOSS WALL/CPU WALL/CPU ...   nanoseconds per step
//   memory                                  ok KIB             growth of the peak since before
//   begin
//
// DATA is a folder of IDX files and goes to the end of the line. LOSS is of the last step; CPU is
// what all threads of the process used. Anything else is answered by "error MESSAGE". The process
// ends with its input.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_STEP_SERVER_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_STEP_SERVER_H_

#include <cstdint>
#include <iosfwd>
#include <string>

#include "tidepool/tools/benchmarks/training_case.h"

namespace tidepool {
struct LabelledImages;
}

namespace tidepool::tools {

class StepSide {
 public:
  virtual ~StepSide() = default;
  virtual std::string Describe() = 0;  // one line
  // Makes the network with its updater; `images` outlive the side. Returns the number of
  // parameters. Any std::exception becomes an error answer.
  virtual int64_t Begin(const TrainingCase& training_case, const LabelledImages& images) = 0;
  // One step on the images [first, first + batch): makes the batch (f32, 0..1), forward, mean
  // softmax cross-entropy, backward, update. Returns the loss, so that nothing is left unfinished.
  virtual double Step(int64_t first) = 0;
  // Of a side that works on a device: how much more of its memory was in use at the most than before Begin. -1: the process's
  // resident memory is what counts.
  virtual int64_t DevicePeakKib() { return -1; }
};

// Answers until the input ends. The images follow each other in the order of the file; what does
// not fill a batch at its end is left out.
void ServeSteps(StepSide& side, std::istream& in, std::ostream& out);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_STEP_SERVER_H_
