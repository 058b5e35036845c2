// The counters of workspaces and the ledger that reads them, under every interleaving.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/account_counters.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Result;
using explorer::Sync;

using Counters = AccountCounters<Sync>;

struct Account : Counters {
  // The ledger's.
  Sync::Plain<int64_t> counted{0};
  Sync::Plain<int64_t> peak{0};
  Sync::Plain<bool> rests{false};
  Sync::Plain<int> on_list{0};
};

// As MemoryTracker, with one account and kQuietFolds of 1.
struct Ledger {
  Ledger() { account.SetInbox(&inbox); }

  // A change of the ledger by any thread.
  void Fold() {
    std::lock_guard<Sync::Mutex> lock(mutex);
    FoldListed();
  }
  void FoldListed() {
    Counters::TakeInbox(inbox, [this](Counters* taken) {
      auto* const listed = static_cast<Account*>(taken);
      listed->rests.set(false);
      listed->on_list.set(listed->on_list.get() + 1);
      Check(listed->on_list.get() == 1, "an account is on the list once");
    });
    if (account.on_list.get() == 0) return;
    const bool rested = account.rests.get();
    Look();
    if (rested && account.rests.get() && account.TakeOffList(account.counted.get())) {
      account.on_list.set(0);
    }
  }
  // As FoldAccounts.
  void Look() {
    const int64_t used = account.used_bytes();
    account.rests.set(true);
    if (used == account.counted.get() && std::max(used, account.window_peak()) == used) return;
    account.rests.set(false);
    account.peak.set(std::max(account.peak.get(), account.TakeWindow(used)));
    account.counted.set(used);
  }
  // As the end of a cycle (FoldSlow) of the account's thread.
  void EndCycle() {
    std::lock_guard<Sync::Mutex> lock(mutex);
    account.List();
    FoldListed();
  }

  Sync::Mutex mutex;
  Counters::Inbox inbox{nullptr};
  Account account;
};

// A cycle whose highest moment the ledger must know in the end, with changes beside it.
template <int changes>
void ACycleAndChanges(Execution& execution) {
  auto& ledger = execution.Make<Ledger>();
  execution.Thread([&ledger] {
    ledger.account.AddUsed(5);
    ledger.account.SubUsed(2);
    ledger.account.AddUsed(9);
    ledger.account.SubUsed(12);
    ledger.EndCycle();
  });
  execution.Thread([&ledger] {
    for (int i = 0; i < changes; ++i) ledger.Fold();
  });
  execution.AtEnd([&ledger] {
    Check(ledger.account.counted.get() == 0, "what is used is counted by the end of the cycle");
    Check(ledger.account.peak.get() >= 12, "the highest moment is known");
    Check(ledger.account.peak.get() == 12, "nothing higher is");
  });
}

// Two other threads change the ledger.
void ACycleAndTwoThreads(Execution& execution) {
  auto& ledger = execution.Make<Ledger>();
  execution.Thread([&ledger] {
    ledger.account.AddUsed(5);
    ledger.account.SubUsed(5);
    ledger.EndCycle();
  });
  for (int i = 0; i < 2; ++i) execution.Thread([&ledger] { ledger.Fold(); });
  execution.AtEnd([&ledger] {
    Check(ledger.account.counted.get() == 0, "what is used is counted by the end of the cycle");
    Check(ledger.account.peak.get() == 5, "the highest moment is known");
  });
}

// It rests, is taken off the list and moves again.
void ItRestsAndMoves(Execution& execution) {
  auto& ledger = execution.Make<Ledger>();
  ledger.account.AddUsed(5);
  ledger.Fold();
  ledger.Fold();
  execution.Thread([&ledger] {
    ledger.account.AddUsed(3);
    ledger.account.AddUsed(1);
    ledger.EndCycle();
  });
  execution.Thread([&ledger] {
    ledger.Fold();
    ledger.Fold();
  });
  execution.AtEnd([&ledger] {
    Check(ledger.account.counted.get() == 9, "what is used is counted by the end of the cycle");
    Check(ledger.account.peak.get() == 9, "the highest moment is known");
  });
}

TEST(AccountCountersExplored, NothingIsLost) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"a cycle and a change", ACycleAndChanges<1>, 3},
      {"a cycle and changes", ACycleAndChanges<3>, 2},
      {"it rests and moves", ItRestsAndMoves, 3},
      {"a cycle and two threads", ACycleAndTwoThreads, 2},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

TEST(AccountCountersExplored, NoOrderIsStrongerThanItNeedsToBe) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "accounts", .preemptions = 2}, [](Execution& execution) {
        switch (explorer::Choose(3)) {
          case 0:
            return ACycleAndChanges<3>(execution);
          case 1:
            return ItRestsAndMoves(execution);
          default:
            return ACycleAndTwoThreads(execution);
        }
      });
  std::printf("%s\n", table.report().c_str());
  EXPECT_TRUE(table.original.passed()) << table.report();
  for (const explorer::MutationTable::Row& row : table.rows) {
    // What TakeOffList says of its orders.
    EXPECT_TRUE(row.detected() || row.from == "seq_cst") << table.report();
  }
}

}  // namespace
}  // namespace tidepool
