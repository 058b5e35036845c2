// Shows that a test has teeth: weakens what the explored code is made of, and sees what is noticed.
//
//   const MutationTable table = ExploreMutations({.name = "mailbox"}, body);
//   EXPECT_TRUE(table.original.passed()) << table.report();
//   EXPECT_EQ(table.undetected(), "") << table.report();
//
// Each place where the code under test has an operation is mutated alone, without touching the
// code: its memory order is weakened by one step (seq_cst, acq_rel, then acquire and release each,
// relaxed), each fence and each notification is left out, each lock of a SharedMutex is shared. What no execution notices is needless, so
// that the code may be weakened, or shows that the test does not look at what it is for.
//
// Cost: an exploration per mutation, up to the first failure; whole ones for undetected mutations.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_MUTATIONS_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_MUTATIONS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/testing/explorer/explore.h"

namespace tidepool::explorer {

struct MutationTable {
  struct Row {
    // "stack.h:31", with the column where a line has several operations that read the same.
    std::string where;
    std::string operation;  // "store", "compare_exchange_weak failing", "fence", ...
    std::string from;  // the order that is written there; empty of a notification and of a lock
    std::string to;    // the order that it was given, "lock_shared"; empty where it was left out
    // "stack.h:31 store release -> relaxed", or "... left out".
    std::string text() const;
    // Of the exploration of the mutated code, with the trace of what noticed it. Its string to
    // replay is empty: the code as it stands does not fail there.
    Result result;
    bool detected() const { return !result.passed(); }
  };

  // Of the code as it is. When it fails there are no rows.
  Result original;
  // In the order that the places were first come across.
  std::vector<Row> rows;

  // The mutations nobody noticed, one a line; a mutation whose exploration ended before it was
  // exhausted says so.
  std::string undetected() const;
  // All of them, one a line, with how each was noticed and after how many executions.
  std::string report() const;
};

// As Explore, for the code as it is and then for each mutation. TIDEPOOL_EXPLORER_REPLAY is not
// looked at.
MutationTable ExploreMutations(const Options& options, absl::FunctionRef<void(Execution&)> body);

}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_MUTATIONS_H_
