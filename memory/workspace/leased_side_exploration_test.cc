// A workspace whose leases are out, under every interleaving: what readers give back and close, who ends
// the lease, who opens it next and who frees it.
#include <cstdio>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/workspace/cycle_gate.h"
#include "tidepool/memory/workspace/leased_side.h"
#include "tidepool/memory/workspace/returned_records.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::FailureKind;
using explorer::Result;
using explorer::Sync;

struct Record {
  Sync::Plain<Record*> next{nullptr};
  Sync::Plain<bool> bytes_out{true};
};
struct Links {
  static void SetNext(Record* record, Record* next) { record->next.set(next); }
};

// As WorkspaceCore of a ring's slot, with two records that are out and whose cycle was handed over.
template <typename Policy = Sync>
struct Core {
  using Gate = BasicCycleGate<Sync>;

  Core() {
    gate.Enter(token);
    gate.HandOver();
  }
  // Of a reader that has the last handle.
  void Release(Record* record) {
    if (leased.WhileLeased(gate, [&] {
          Drain();
          TakeBack(record);
        })) {
      return;
    }
    if (returned.Give(record)) Sync::Delete(this);
  }
  // Of a reader that keeps a handle.
  void Close(Record* record) {
    leased.WhileLeased(gate, [&] {
      if (record->bytes_out.get()) GiveBack(record);
    });
  }
  void EndLease() {
    leased.End([&] {
      Drain();
      gate.Report(token);
    });
    gate.Leave();
  }
  void OpenNext() {
    Check(gate.Enter(token) == Gate::Entry::kEntered, "it was left");
    Drain();
    bytes.set(bytes.get() + 1);
    gate.HandOver();
  }
  void Abandon() {
    do {
      Drain();
    } while (!returned.End(out.get()));
    if (returned.DropOwner()) Sync::Delete(this);
  }

  void Drain() {
    Record* record = returned.TakeAll();
    while (record != nullptr) TakeBack(std::exchange(record, record->next.get()));
  }
  void TakeBack(Record* record) {
    if (record->bytes_out.get()) GiveBack(record);
    out.set(out.get() - 1);
  }
  void GiveBack(Record* record) {
    record->bytes_out.set(false);
    bytes.set(bytes.get() - 1);
  }

  Gate gate;
  LeasedSide<Policy> leased;
  BasicReturnedRecords<Sync, Record, Links> returned;
  // Whoever has the cycle.
  Sync::Plain<int> out{2};
  Sync::Plain<int> bytes{2};
  Record records[2];
  alignas(8) char token[8] = {};
};

// Two readers give back, one of them the lease as well, and the producer's next batch comes.
template <typename Policy = Sync>
void ReadersAndTheNextBatch(Execution& execution) {
  auto& core = execution.Make<Core<Policy>>();
  execution.Thread([&core] { core.Release(&core.records[0]); });
  execution.Thread([&core] {
    core.Release(&core.records[1]);
    core.EndLease();
    core.OpenNext();
    core.EndLease();
  });
  execution.AtEnd([&core] {
    core.Drain();
    Check(core.out.get() == 0 && core.bytes.get() == 1, "all is back, and the next batch");
  });
}

void ClosingAndTheEndOfTheLease(Execution& execution) {
  auto& core = execution.Make<Core<>>();
  execution.Thread([&core] {
    core.Close(&core.records[0]);
    core.Release(&core.records[0]);
  });
  execution.Thread([&core] {
    core.EndLease();
    core.OpenNext();
  });
  execution.AtEnd([&core] {
    core.EndLease();
    Check(core.out.get() == 1 && core.bytes.get() == 2, "it came back once");
  });
}

// Whoever opens it next comes after the lease, and does so by the gate alone.
void AnotherProducer(Execution& execution) {
  auto& core = execution.Make<Core<>>();
  execution.Thread([&core] {
    core.Release(&core.records[0]);
    core.Release(&core.records[1]);
    core.EndLease();
  });
  execution.Thread([&core] {
    while (core.gate.Enter(core.token) != Core<>::Gate::Entry::kEntered) Sync::Yield();
    core.Drain();
    core.bytes.set(core.bytes.get() + 1);
    core.gate.Leave();
  });
}

// The ring is destroyed once the lease has ended; the last record frees the core.
void TwoReadersAndTheRingsEnd(Execution& execution) {
  auto* core = Sync::New<Core<>>();
  for (Record& record : core->records) {
    execution.Thread([core, &record] {
      core->Close(&record);
      core->Release(&record);
    });
  }
  execution.Thread([core] {
    core->EndLease();
    core->Abandon();
  });
}

TEST(LeasedSideExplored, OneAfterTheOther) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"readers and the next batch", ReadersAndTheNextBatch<>, 3},
      {"closing and the end", ClosingAndTheEndOfTheLease, 3},
      {"another producer", AnotherProducer, 3},
      {"two readers and the ring's end", TwoReadersAndTheRingsEnd, 2},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

TEST(LeasedSideExplored, NoOrderIsStrongerThanItNeedsToBe) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "leased", .preemptions = 2}, [](Execution& execution) {
        switch (explorer::Choose(4)) {
          case 0:
            return ReadersAndTheNextBatch(execution);
          case 2:
            return AnotherProducer(execution);
          case 1:
            return ClosingAndTheEndOfTheLease(execution);
          default:
            return TwoReadersAndTheRingsEnd(execution);
        }
      });
  std::printf("%s\n", table.report().c_str());
  EXPECT_TRUE(table.original.passed()) << table.report();
  EXPECT_EQ(table.undetected(), "") << table.report();
}

// The lock, which the table does not leave out.
struct WithoutLocks : Sync {
  struct Mutex {
    void lock() {}
    void unlock() {}
  };
};
TEST(LeasedSideExplored, TheLockIsNeeded) {
  const Result result = explorer::Explore({}, ReadersAndTheNextBatch<WithoutLocks>);
  EXPECT_EQ(result.failure, FailureKind::kDataRace) << result.report();
}

}  // namespace
}  // namespace tidepool
