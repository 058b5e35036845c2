// Whether steps of given sizes, each taken at most so often, lead from one place exactly to another: so two views have an
// element in common, or not.
#ifndef TIDEPOOL_NDARRAY_STEP_REACH_H_
#define TIDEPOOL_NDARRAY_STEP_REACH_H_

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "tidepool/ndarray/shape.h"

namespace tidepool {

// An element of the one view lies on one of the other where steps of both, those of the other counted back from its last
// element, lead from the one's first element to the other's last. Larger steps go first: what they leave, smaller ones must be able to reach,
// so that few are tried where axes do not reach over one another.
class StepReach {
 public:
  // Of at most 2 * kMaxRank + 1 different sizes. `step` >= 0, `most` >= 0; none where one of them is 0.
  void Add(int64_t step, int64_t most) {
    if (step == 0 || most == 0) return;
    for (int i = 0; i < count_; ++i) {
      if (terms_[i].step == step) {
        terms_[i].most += most;
        return;
      }
    }
    int at = count_++;
    for (; at > 0 && terms_[at - 1].step < step; --at) terms_[at] = terms_[at - 1];
    terms_[at] = {step, most};
  }
  // True too where that is not decided within kMostTries: steps that hardly differ and go on for long.
  bool Reaches(int64_t distance) {
    int64_t divisor = 0, reach = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      divisor_[i] = divisor = std::gcd(divisor, terms_[i].step);
      reach_[i] = reach += terms_[i].step * terms_[i].most;
    }
    return FromTerm(0, distance);
  }

 private:
  static constexpr int kMostTries = 4096;
  struct Term {
    int64_t step = 0, most = 0;
  };

  bool FromTerm(int at, int64_t distance) {
    if (distance == 0) return true;
    if (at == count_ || distance > reach_[at] || distance % divisor_[at] != 0) return false;
    if (at == count_ - 1) return true;
    const Term& term = terms_[at];
    const int64_t left = std::max<int64_t>(distance - reach_[at + 1], 0);
    for (int64_t times = std::min(distance / term.step, term.most);
         times >= (left + term.step - 1) / term.step; --times) {
      if (++tries_ > kMostTries || FromTerm(at + 1, distance - times * term.step)) return true;
    }
    return false;
  }

  static constexpr int kMostTerms = 2 * kMaxRank + 1;
  Term terms_[kMostTerms];  // the largest step first
  int count_ = 0;
  int64_t divisor_[kMostTerms], reach_[kMostTerms];  // of those from there on together
  int tries_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_STEP_REACH_H_
