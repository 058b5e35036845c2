// A GoogleTest matcher that says what a piece of code may leave in a manager. The guide is
// docs/testing_memory.md; matchers.h has those about memory itself.
//
//   EXPECT_THAT([&] { for (int i = 0; i < 100; ++i) predictor.Predict(x); },
//               GrowsNothingIn(model.manager().ref()));
#ifndef TIDEPOOL_MEMORY_TESTING_OWNERSHIP_MATCHERS_H_
#define TIDEPOOL_MEMORY_TESTING_OWNERSHIP_MATCHERS_H_

#include "gmock/gmock.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/testing/matchers.h"

namespace tidepool {

// Leaves the manager and those below it with no more sub-managers, arrays, bytes or loans than before;
// less is fine. A manager made anew under a name it had before counts as the same. A failure has a
// line per manager that grew, and names what is new in it: with MemoryTracing::Enable(), also shape
// and the line that made it. `owner` must be open before and after. The action is called once; what
// other threads do in the subtree meanwhile counts too.
::testing::PolymorphicMatcher<MemoryMatcher> GrowsNothingIn(OwnerRef owner);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_OWNERSHIP_MATCHERS_H_
