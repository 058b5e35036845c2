// The protocols of a workspace under every interleaving: who has it open, and what other threads give
// back. docs/testing_memory.md says how to read a failure and to repeat it.
#include <cstdio>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/workspace/cycle_gate.h"
#include "tidepool/memory/workspace/returned_records.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Explore;
using explorer::ExploreMutations;
using explorer::MutationTable;
using explorer::Options;
using explorer::Result;
using explorer::Sync;

using Gate = BasicCycleGate<Sync>;

// What a gate guards: whoever is inside reads and writes it, which is a race unless one after the other.
struct Guarded {
  Gate gate;
  Sync::Plain<int> inside{0};
  alignas(8) char tokens[2][8] = {};

  void BeInside() {
    Check(inside.get() == 0, "nobody else is inside");
    inside.set(1);
    inside.set(0);
  }
};

void Cycles(Guarded& guarded, const void* token, int cycles) {
  for (int i = 0; i < cycles; ++i) {
    const Gate::Entry entry = guarded.gate.Enter(token);
    Check(entry != Gate::Entry::kReportingHere, "this thread does not report");
    if (entry == Gate::Entry::kOpenElsewhere) continue;
    Check(guarded.gate.is_open_on(token), "who has entered knows it");
    guarded.BeInside();
    guarded.gate.Report(token);
    Check(guarded.gate.Enter(token) == Gate::Entry::kReportingHere, "a sink may not enter");
    guarded.gate.Leave();
  }
}

void CyclesAndCycles(Execution& execution) {
  auto& guarded = execution.Make<Guarded>();
  execution.Thread([&] { Cycles(guarded, guarded.tokens[0], 2); });
  execution.Thread([&] { Cycles(guarded, guarded.tokens[1], 1); });
}

// Who enters while it is maintained is neither refused nor forgotten.
void CyclesAndMaintenance(Execution& execution) {
  auto& guarded = execution.Make<Guarded>();
  execution.Thread([&] {
    Check(guarded.gate.Enter(guarded.tokens[0]) == Gate::Entry::kEntered, "maintenance ends");
    guarded.BeInside();
    guarded.gate.Leave();
  });
  execution.Thread([&] {
    bool open = false;
    if (!guarded.gate.TryMaintain(&open)) {
      Check(open, "nobody else maintains it");
      return;
    }
    guarded.BeInside();
    guarded.gate.wanted();
    Check(guarded.gate.EndMaintenance(), "nobody destroys it");
  });
}

void MaintenanceTwice(Execution& execution) {
  auto& guarded = execution.Make<Guarded>();
  for (int thread = 0; thread < 2; ++thread) {
    execution.Thread([&] {
      Check(guarded.gate.Maintain(), "nobody has it open");
      guarded.BeInside();
      Check(guarded.gate.EndMaintenance(), "nobody destroys it");
    });
  }
}

// Three parties: a thread, the Reclaimer, and a thread that hands its cycle over to a lease.
void ThreeParties(Execution& execution) {
  auto& guarded = execution.Make<Guarded>();
  execution.Thread([&] { Cycles(guarded, guarded.tokens[0], 1); });
  execution.Thread([&] {
    if (!guarded.gate.TryMaintain()) return;
    guarded.BeInside();
    Check(guarded.gate.EndMaintenance(), "nobody destroys it");
  });
  execution.Thread([&] {
    if (guarded.gate.Enter(guarded.tokens[1]) != Gate::Entry::kEntered) return;
    guarded.BeInside();
    guarded.gate.HandOver();
    Check(guarded.gate.is_leased() && guarded.gate.is_open(), "the lease has it open");
    guarded.BeInside();
    guarded.gate.Leave();
  });
}

// Who finds it leased sees what the producer has made.
void AReaderOfALease(Execution& execution) {
  auto& guarded = execution.Make<Guarded>();
  execution.Thread([&] {
    if (guarded.gate.Enter(guarded.tokens[0]) != Gate::Entry::kEntered) return;
    guarded.BeInside();
    guarded.gate.HandOver();
  });
  execution.Thread([&] {
    if (guarded.gate.is_leased()) guarded.BeInside();
  });
}

// One of them has it in the end, alone, and sees what the other has done. Who is in a callback is
// told.
void DestroyedWhileMaintained(Execution& execution) {
  struct Destroyed : Guarded {
    Sync::Plain<int> freed{0};
    void Free() {
      BeInside();
      Check(freed.get() == 0, "it is freed once");
      freed.set(1);
    }
  };
  auto& guarded = execution.Make<Destroyed>();
  execution.Thread([&] {
    if (!guarded.gate.TryMaintain()) return;
    guarded.BeInside();
    Check(guarded.gate.TryEnter(guarded.tokens[0]) != Gate::Entry::kEntered,
          "it is maintained here");
    if (!guarded.gate.EndMaintenance()) guarded.Free();
  });
  execution.Thread([&] {
    guarded.freed.get();  // the destroyer's until it is closed
    if (guarded.gate.CloseForGood()) guarded.Free();
    Check(!guarded.gate.is_open(), "it stays closed");
  });
}

TEST(CycleGateExplored, OneIsInsideAndNobodySleepsForEver) {
  for (auto* body : {&CyclesAndCycles, &CyclesAndMaintenance, &MaintenanceTwice, &AReaderOfALease,
                     &DestroyedWhileMaintained}) {
    const Result result = Explore({.name = "gate of two"}, *body);
    EXPECT_TRUE(result.passed()) << result.report();
    EXPECT_TRUE(result.exhausted) << result.report();
  }
  const Result result = Explore({.name = "gate of three", .preemptions = 2}, ThreeParties);
  EXPECT_TRUE(result.passed()) << result.report();
  EXPECT_TRUE(result.exhausted) << result.report();
}

// ---- records that come back --------------------------------------------------------------------

struct Record {
  Sync::Plain<Record*> next{nullptr};
  Sync::Plain<int> contents{0};
};
struct Links {
  static Record* Next(const Record* record) { return record->next.get(); }
  static void SetNext(Record* record, Record* next) { record->next.set(next); }
};
using Returned = BasicReturnedRecords<Sync, Record, Links>;

// An owner with records out on other threads; freed by whoever is told to.
struct Owner {
  Returned returned;
  Record records[3];
  Sync::Plain<int> taken{0};

  void Drain() {
    for (Record* record = returned.TakeAll(); record != nullptr;) {
      Record* const next = Links::Next(record);
      Check(record->contents.get() == 1, "what was written before it was given is seen");
      taken.set(taken.get() + 1);
      record = next;
    }
  }
};

void Give(Owner* owner, int number) {
  owner->records[number].contents.set(1);
  if (owner->returned.Give(&owner->records[number])) Sync::Delete(owner);
}

void End(Owner* owner, int out) {
  do {
    owner->Drain();
  } while (!owner->returned.End(out - owner->taken.get()));
  if (owner->returned.DropOwner()) Sync::Delete(owner);
}

// Each is freed exactly once: twice, never and use afterwards are what the explorer finds itself.
void OwnerEndsWhileRecordsComeBack(Execution& execution) {
  Owner* owner = Sync::New<Owner>();
  execution.Thread([owner] {
    Give(owner, 0);
    Give(owner, 1);
  });
  execution.Thread([owner] { End(owner, 2); });
}

void TwoGiveWhileTheOwnerEnds(Execution& execution) {
  Owner* owner = Sync::New<Owner>();
  execution.Thread([owner] { Give(owner, 0); });
  execution.Thread([owner] { Give(owner, 1); });
  execution.Thread([owner] { End(owner, 2); });
}

TEST(ReturnedRecordsExplored, EachIsTakenOrCountedAndTheOwnerFreedOnce) {
  const Result two = Explore({.name = "returned records of two"}, OwnerEndsWhileRecordsComeBack);
  EXPECT_TRUE(two.passed()) << two.report();
  EXPECT_TRUE(two.exhausted) << two.report();
  const Result three =
      Explore({.name = "returned records of three", .preemptions = 2}, TwoGiveWhileTheOwnerEnds);
  EXPECT_TRUE(three.passed()) << three.report();
  EXPECT_TRUE(three.exhausted) << three.report();
}

// ---- teeth ----------------------------------------------------------------------------------------

TEST(WorkspaceProtocolsExplored, NoOrderIsStrongerThanItNeedsToBe) {
  const auto gate = [](Execution& execution) {
    switch (explorer::Choose(5)) {
      case 0:
        return CyclesAndCycles(execution);
      case 1:
        return CyclesAndMaintenance(execution);
      case 2:
        return MaintenanceTwice(execution);
      case 3:
        return AReaderOfALease(execution);
      default:
        return DestroyedWhileMaintained(execution);
    }
  };
  const MutationTable gates = ExploreMutations({.name = "gate", .preemptions = 2}, gate);
  std::printf("%s\n", gates.report().c_str());
  EXPECT_EQ(gates.undetected(), "");
  const MutationTable records =
      ExploreMutations({.name = "returned records", .preemptions = 2}, TwoGiveWhileTheOwnerEnds);
  std::printf("%s\n", records.report().c_str());
  EXPECT_EQ(records.undetected(), "");
}

}  // namespace
}  // namespace tidepool
