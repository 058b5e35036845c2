// Texts and errors for which there is no memory: each allocation on their way fails in turn.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <new>
#include <optional>
#include <string>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_log.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_registry.h"

namespace tidepool {
namespace {

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// Runs `step` without a fault, as some things are made once, then with its first allocation failing,
// then its second, until it asks for no more; how many that were. It may end by std::bad_alloc or
// OutOfMemoryError, and `check` looks what it has left.
int FaultAtEachAllocation(const std::function<void()>& step, const std::function<void()>& check) {
  for (int faults = -1; faults < 2000; ++faults) {
    until_fault = faults;
    fault_happened = false;
    faults_on = faults >= 0;
    bool as_promised = true;
    try {
      step();
    } catch (const std::bad_alloc&) {
      as_promised = fault_happened;
    } catch (const OutOfMemoryError&) {
    } catch (...) {
      as_promised = false;
    }
    faults_on = false;
    EXPECT_TRUE(as_promised) << "allocation " << faults;
    check();
    if (faults >= 0 && !fault_happened) return faults;
  }
  ADD_FAILURE() << "there is no end of allocations";
  return 0;
}

class ReportFaults : public ::testing::Test {
 protected:
  ReportFaults() {
    for (int i = 0; i < 6; ++i) {
      PooledScope scope(pool_);
      const BufferHandle a = New(1000 * static_cast<size_t>(1 + i % 3)), b = New(2000);
    }
  }
  ~ReportFaults() override { MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited); }

  // Longer than the bytes that a string, or a text on the stack, has of its own.
  const std::string long_ = std::string(300, 'x');
  WorkspacePool pool_{"a pool of a long name " + long_};
  const MemoryOwnerScope owner_{"an owner of a long name " + long_};
  const BufferHandle array_ = New(123456);
};

TEST_F(ReportFaults, TextsOfTheLedger) {
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  const MemoryDifference difference = Difference(MemoryTracker().Snapshot(), snapshot);
  const std::function<std::string()> texts[] = {
      [&] { return snapshot.ToString(); }, [&] { return snapshot.OwnersToString(); },
      [&] { return snapshot.ToJson(); }, [&] { return difference.ToString(); },
      [&] { return difference.ToJson(); }};
  for (const auto& text : texts) {
    const std::string expected = text();
    std::string found;
    const auto whole_or_none = [&] {
      EXPECT_EQ(found.empty() ? expected : found, expected);
      found.clear();
    };
    EXPECT_GT(FaultAtEachAllocation([&] { found = text(); }, whole_or_none), 3);
    EXPECT_EQ(text(), expected);
  }
}

TEST_F(ReportFaults, TextsThatAreReadOfTheLiving) {
  WorkspaceRegistry::ForCurrentThread().Get("a workspace of a long name " + long_,
                                            WorkspaceConfig{});
  MemoryLog log({.owners = {"an owner of a long name " + long_}});
  log.Sample("a label of a long name " + long_);
  const std::function<std::string()> texts[] = {
      [] { return MetricsText(); }, [&] { return log.ToCsv(); },
      [] { return WorkspaceRegistry::ForCurrentThread().Dump(); }};
  for (const auto& text : texts) {
    EXPECT_GT(FaultAtEachAllocation([&] { text(); }, [] {}), 3);
    EXPECT_NE(text().find(long_), std::string::npos);
  }
  WorkspaceRegistry::ForCurrentThread().DestroyAll();
}

// The error, its message and its report are made where memory is short.
TEST_F(ReportFaults, RefusalsOfABudget) {
  MemoryBudget& budget = MemoryBudget::Global();
  WorkspaceConfig config;
  config.policy_spill = SpillPolicy::kExternal;
  Workspace workspace("a workspace of a long name " + long_, config);
  const std::function<void()> requests[] = {[] { New(1 << 20); },
                                            [&] {
                                              const PooledScope scope(pool_);
                                              New(32 << 20);
                                            },
                                            [&] {
                                              const WorkspaceScope scope(workspace);
                                              New(1 << 20);
                                            }};
  pool_.Trim();
  const int64_t taken = budget.process().taken_bytes;
  int refused = 0, told = 0;
  for (const bool listens : {false, true}) {
    std::optional<MemoryEventCallback> watch;
    if (listens) {
      watch.emplace([&](const MemoryEvent& event) { told += !event.ToString().empty(); });
    }
    for (const auto& request : requests) {
      budget.SetProcessLimit(taken + 500000);
      const auto refuses = [&] {
        try {
          request();
        } catch (const OutOfMemoryError& error) {
          ++refused;
          EXPECT_EQ(error.message().find("memory budget: "), 0u);
          EXPECT_NE(error.report().find(long_), std::string::npos);
          throw;
        }
        ADD_FAILURE() << "granted";
      };
      const auto nothing_is_left = [&] {
        pool_.Trim();
        workspace.Trim();
        EXPECT_EQ(budget.process().taken_bytes, taken);
      };
      refused = 0;
      EXPECT_GT(FaultAtEachAllocation(refuses, nothing_is_left), 20);
      EXPECT_GE(refused, 2);  // where nothing fails but the request
      budget.SetProcessLimit(MemoryBudget::kUnlimited);
      request();
    }
  }
  EXPECT_GT(told, 10);
}

}  // namespace
}  // namespace tidepool
