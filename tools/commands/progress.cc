#include "tidepool/tools/commands/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tidepool::tools {

Progress::Progress(int epochs, int64_t examples)
    : epochs_(epochs),
      examples_(examples),
      terminal_(isatty(STDOUT_FILENO) != 0),
      start_(Clock::now()),
      epoch_start_(start_),
      last_print_(start_) {}

void Progress::StartFrom(int epoch, int64_t examples_done) {
  examples_before_ = examples_done;
  done_before_ = (epoch - 1) + static_cast<double>(examples_done) / static_cast<double>(examples_);
}

void Progress::Step(int epoch, int64_t examples_done, double mean_loss) {
  const Clock::time_point now = Clock::now();
  const auto interval = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_print_ < interval) return;
  last_print_ = now;
  Print(epoch, examples_done, mean_loss, !terminal_);
}

void Progress::EndEpoch(int epoch, double mean_loss) {
  Print(epoch, examples_, mean_loss, true);
  examples_before_ = 0;
  epoch_start_ = last_print_ = Clock::now();
}

void Progress::Print(int epoch, int64_t examples_done, double mean_loss, bool whole_line) {
  const Clock::time_point now = Clock::now();
  const double epoch_seconds =
      std::max(1e-9, std::chrono::duration<double>(now - epoch_start_).count());
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double done = (epoch - 1) + static_cast<double>(examples_done) / examples_;
  const double left = done > done_before_ ? seconds / (done - done_before_) * (epochs_ - done) : 0;
  std::printf("%sepoch %d/%d  %6lld/%lld examples  %7.0f examples/s  loss %.4f  %5.1f s left%s",
              terminal_ ? "\r" : "", epoch, epochs_, static_cast<long long>(examples_done),
              static_cast<long long>(examples_),
              static_cast<double>(examples_done - examples_before_) / epoch_seconds, mean_loss,
              left, whole_line ? "\n" : "");
  std::fflush(stdout);
}

}  // namespace tidepool::tools
