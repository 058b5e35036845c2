// For how long memory that nobody uses is retained: longer where it was wanted again soon after it
// had gone.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_RETENTION_H_
#define TIDEPOOL_MEMORY_WORKSPACE_RETENTION_H_

#include <algorithm>

namespace tidepool {

// Counted in uses, whatever these are. Each time that memory goes is judged once: the number is
// doubled where the system is asked for some in the kJudged times as many uses that follow, and
// halved otherwise. So what comes again in equal intervals of at most `most` uses (and less than
// kJudged times `least`) soon costs no requests to the system, and what came long ago is not
// remembered for ever.
class Retention {
 public:
  static constexpr int kJudged = 16;

  Retention(int least, int most) : least_(least), most_(most), uses_(least) {}

  // Memory that was not used in so many goes.
  int uses() const { return uses_; }

  // A use has ended, in which the system was asked for memory or not; at its end some went or none.
  void EndUse(bool asked, bool gave_back) {
    if (judged_in_ > 0) {
      if (asked) {
        uses_ = std::min(most_, 2 * uses_);
        judged_in_ = 0;
      } else if (--judged_in_ == 0) {
        uses_ = std::max(least_, uses_ / 2);
      }
    }
    if (gave_back) judged_in_ = kJudged * uses_;
  }

 private:
  const int least_;
  const int most_;
  int uses_;
  int judged_in_ = 0;  // uses; 0: nothing is to be judged
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_RETENTION_H_
