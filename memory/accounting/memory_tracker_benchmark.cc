// What the slow paths pay for being counted.
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"

namespace tidepool {
namespace {

// One heap array on the ledger and off it; so many workspaces exist beside it.
void AddAndTakeOff(benchmark::State& state) {
  MemoryTracker tracker;
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  for (int i = 0; i < state.range(0); ++i) {
    accounts.push_back(std::make_unique<MemoryAccount>(Host()));
    tracker.Register(accounts.back().get());
    tracker.AddOwned(accounts.back().get(), 4096);
    accounts.back()->AddUsed(100);
  }
  MemoryOwner& owner = MemoryOwner::Process().Child("network").Tagged("parameters");
  for (auto _ : state) {
    tracker.Add(Host(), MemoryKind::kAllocated, 4096, &owner);
    tracker.Add(Host(), MemoryKind::kAllocated, -4096, &owner);
  }
}
BENCHMARK(AddAndTakeOff)->Arg(0)->Arg(1)->Arg(100)->Arg(1000)->Arg(4000);

// The same while the workspaces work in turn, each between two of the changes.
void AddAndTakeOffWhileAccountsMove(benchmark::State& state) {
  MemoryTracker tracker;
  std::vector<std::unique_ptr<MemoryAccount>> accounts;
  for (int i = 0; i < state.range(0); ++i) {
    accounts.push_back(std::make_unique<MemoryAccount>(Host()));
    tracker.Register(accounts.back().get());
  }
  size_t turn = 0;
  for (auto _ : state) {
    accounts[turn]->AddUsed(100);
    tracker.Add(Host(), MemoryKind::kAllocated, 4096);
    accounts[turn]->SubUsed(100);
    tracker.Add(Host(), MemoryKind::kAllocated, -4096);
    turn = turn + 1 == accounts.size() ? 0 : turn + 1;
  }
}
BENCHMARK(AddAndTakeOffWhileAccountsMove)->Arg(1)->Arg(100)->Arg(1000)->Arg(4000);

void ReserveAndRelease(benchmark::State& state) {
  MemoryBudget& budget = MemoryBudget::Global();
  if (state.range(0) != 0) budget.SetProcessLimit(1 << 30);
  MemoryOwner& owner = MemoryOwner::Process().Child("network").Tagged("parameters");
  for (auto _ : state) {
    budget.Reserve(Host(), owner, 4096, "pages");
    budget.Release(Host(), owner, 4096);
  }
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
}
BENCHMARK(ReserveAndRelease)->Arg(0)->Arg(1);

void APeakScope(benchmark::State& state) {
  MemoryTracker tracker;
  for (auto _ : state) {
    PeakScope scope(Host(), nullptr, tracker);
    benchmark::DoNotOptimize(scope.peak_bytes());
  }
}
BENCHMARK(APeakScope);

void AScopeByName(benchmark::State& state) {
  for (auto _ : state) {
    MemoryOwnerScope scope("layer");
    benchmark::DoNotOptimize(&MemoryOwner::Current());
  }
}
BENCHMARK(AScopeByName);

}  // namespace
}  // namespace tidepool
