// A progress line: rewritten in place on a terminal, plain lines now and then elsewhere.
#ifndef TIDEPOOL_TOOLS_COMMANDS_PROGRESS_H_
#define TIDEPOOL_TOOLS_COMMANDS_PROGRESS_H_

#include <chrono>
#include <cstdint>

namespace tidepool::tools {

class Progress {
 public:
  // `examples`: of one epoch.
  Progress(int epochs, int64_t examples);

  // Of a run that goes on from there: what was done before is not of this one's pace.
  void StartFrom(int epoch, int64_t examples_done);
  // After each step. Prints at most ten times a second on a terminal and every ten seconds
  // elsewhere. Allocates nothing.
  void Step(int epoch, int64_t examples_done, double mean_loss);
  // At the end of an epoch: always a line of its own.
  void EndEpoch(int epoch, double mean_loss);

 private:
  void Print(int epoch, int64_t examples_done, double mean_loss, bool whole_line);

  using Clock = std::chrono::steady_clock;
  int epochs_;
  int64_t examples_;
  bool terminal_;
  double done_before_ = 0;       // epochs
  int64_t examples_before_ = 0;  // of this epoch
  Clock::time_point start_, epoch_start_, last_print_;
};

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_PROGRESS_H_
