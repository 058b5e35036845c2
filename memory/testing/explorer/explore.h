// Runs a small program of threads under every interleaving, and under the weak memory of C++20.
//
//   Result result = Explore({.name = "handover"}, [](Execution& execution) {
//     auto& box = execution.Make<Mailbox<explorer::Sync>>();     // fresh in each execution
//     execution.Thread([&box] { box.Put(42); });
//     execution.Thread([&box] { Check(box.Take() == 42, "what was put is taken"); });
//     execution.AtEnd([&box] { Check(box.empty(), "nothing is left"); });
//   });
//   EXPECT_TRUE(result.passed()) << result.report();
//
// What is explored are the operations of the policy explorer::Sync
// (memory/testing/explorer/sync.h), which has the shape of StdSync: the class template that
// production instantiates with StdSync is instantiated with it here. The body is called once per
// execution, on the thread that calls Explore; it must be deterministic but for what the explorer
// chooses (no time, no random numbers, no state kept from one execution to the next that steers
// it), and threads that wait for another one must block or call Sync::Yield(). A body that is not
// deterministic is told (kNotDeterministic) where a repeated part of an execution has other choices,
// steps or atomic variables than before, and where the first executions of two rounds of kBounded
// differ in these; else not: an execution that is not repeated (kRandom) is compared with none, and plain
// variables and values are not compared.
//
// Memory: that of C++20 without load buffering (as RC11). A load may read any store that coherence
// and what happened before allow it, not only the last; a store may be placed in the modification
// order before others that its thread has not seen; sequentially consistent accesses and fences are
// kept to one total order; only read-modify-writes continue a release sequence. Left out: values
// out of thin air and load buffering (a load that reads what is stored later in its own thread's
// future); the few outcomes of C++20 where the total order contradicts happens-before by mixing
// sequentially consistent and weaker accesses of one variable; consume is acquire. What a search
// leaves out beside, and when it says so: docs/testing_memory.md, "What is left out".
//
// Found: a Check that fails, an invariant that does not hold after some step, data races of
// Sync::Plain and with the birth and death of atomic variables, use after Sync::Delete, deleting
// twice, leaks, deadlocks (lost wake-ups), livelocks, exceptions that leave a thread.
//
// Threads: an exploration and all it explores runs on the calling thread; several threads may
// explore at once. Cost: some 100 ns per operation, optimised.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_EXPLORE_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_EXPLORE_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/functional/function_ref.h"
#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer {

namespace internal {
class Engine;
}  // namespace internal

enum class Search {
  // All executions with no preemption, then all with at most one, up to Options::preemptions. A
  // preemption is a switch away from a thread that could go on; switches at a block, a yield or the
  // end of a thread are free. Stops early if the bound kept nothing out.
  kBounded,
  // All executions, leaving out some of those that differ only in the order of independent steps
  // (sleep sets). For two threads of about ten operations.
  kFull,
  // Options::executions executions, each choice at random.
  kRandom,
  // As many with random priorities of the threads that change at few random steps (PCT), which
  // finds
  // a bug that needs d orderings with a probability of at least 1/(n k^(d-1)) per execution.
  kPriorities,
};

struct Options {
  // Names the exploration in reports and in strings to replay.
  std::string name;
  Search search = Search::kBounded;
  int preemptions = 3;
  // The search ends, not exhausted, after that many.
  int64_t max_executions = 20'000'000;
  // An execution of more steps is a livelock.
  int64_t max_steps = 2'000;
  // How many weak compare-exchanges and try_locks of one execution fail for no reason at most.
  int spurious_failures = 1;
  // How often in a row a thread may yield and go on at once though others could go on, in a loop that
  // does more than read atomic variables (and so may see something new each time); then it waits for
  // those others. Result::yields_left_out says whether that left anything out.
  int yields = 2;
  // Places stores at the end of the modification order only. Fewer executions, and what needs two
  // threads' stores in different orders at two variables (2+2W) is not seen: Result::stores_left_out
  // says whether anything was left out.
  bool stores_in_order = false;
  // For kRandom and kPriorities.
  int64_t executions = 10'000;
  uint64_t seed = 1;
  int priority_changes = 2;
  // Of each explored thread. One that needs more ends the program, with a message that names it.
  size_t stack_bytes = 256 << 10;
  // What a report gave as "replay": that one execution is run, with a trace. When empty, the
  // environment variable TIDEPOOL_EXPLORER_REPLAY is taken if it names this exploration. One that
  // names another one than `name` is kInvalidArgument.
  std::string replay;
};

enum class FailureKind {
  kNone,
  kCheck,
  kInvariant,
  kDataRace,
  kUseAfterFree,
  kDoubleFree,
  kLeak,
  kDeadlock,
  kLivelock,
  kException,
  kMisuse,
  kNotDeterministic,
};
absl::string_view ToText(FailureKind kind);

struct Result {
  // What one preemption bound took, or the whole of another search.
  struct Round {
    int preemptions = -1;  // -1: no bound
    int64_t executions = 0;
    // Of these, seen for the first time: with as many preemptions as the bound.
    int64_t distinct = 0;
    // Of these, found to repeat others half-way (sleep sets).
    int64_t pruned = 0;
  };

  bool passed() const { return failure == FailureKind::kNone; }
  // A few lines: what was covered, and of a failure what, the trace and the string to replay.
  std::string report() const;

  std::string name;
  FailureKind failure = FailureKind::kNone;
  std::string message;
  std::string replay;
  // Of the failing execution, or the replayed one: a column per thread, a line per operation.
  std::string trace;
  std::vector<Round> rounds;
  int64_t executions = 0;
  int64_t steps = 0;
  // The most choices in one execution.
  int64_t depth = 0;
  double seconds = 0;
  // All executions within the last round's bound, Options::yields and Options::stores_in_order were run;
  // `unbounded` if these kept nothing out, so that these are all there are. `yields_left_out` if
  // Options::yields kept something out, `stores_left_out` if Options::stores_in_order did.
  bool exhausted = false;
  bool unbounded = false;
  bool yields_left_out = false;
  bool stores_left_out = false;
  bool replayed = false;
};

// What the body of a test builds one execution with.
class Execution {
 public:
  explicit Execution(internal::Engine& engine) : engine_(engine) {}

  // An object that lives until the end of the execution; destroyed, the last first, after AtEnd.
  template <typename T, typename... Arguments>
  T& Make(Arguments&&... arguments) {
    void* const memory = Allocate(sizeof(T), alignof(T));
    AddUnwatched(memory, sizeof(T));
    return *Construct<T>(memory, std::forward<Arguments>(arguments)...);
  }

  // Adds a thread, at most seven. All start when the body returns.
  template <typename F>
  void Thread(F function) {
    AddThread(&Call<F>, Keep(std::move(function)), sizeof(F));
  }

  // Called when all threads have ended, in the order given; has seen all they did.
  template <typename F>
  void AtEnd(F function) {
    AddEnd(&Call<F>, Keep(std::move(function)));
  }

  // Called after every step of any thread. It sees the newest store of each variable, may not
  // change any, and calls Check for what always holds. Switches the reduction of kFull off.
  template <typename F>
  void Invariant(F function) {
    AddInvariant(&Call<F>, Keep(std::move(function)));
  }

 private:
  template <typename F>
  static void Call(void* function) {
    (*static_cast<F*>(function))();
  }
  template <typename F>
  F* Keep(F function) {
    return Construct<F>(Allocate(sizeof(F), alignof(F)), std::move(function));
  }
  template <typename T, typename... Arguments>
  T* Construct(void* memory, Arguments&&... arguments) {
    T* object = new (memory) T(std::forward<Arguments>(arguments)...);
    if constexpr (!std::is_trivially_destructible_v<T>) {
      DestroyAtEnd([](void* made) { static_cast<T*>(made)->~T(); }, object);
    }
    return object;
  }

  void AddUnwatched(const void* at, size_t bytes);
  void* Allocate(size_t bytes, size_t alignment);
  void DestroyAtEnd(void (*destroy)(void*), void* object);
  void AddThread(void (*function)(void*), void* argument, size_t bytes);
  void AddEnd(void (*function)(void*), void* argument);
  void AddInvariant(void (*function)(void*), void* argument);

  internal::Engine& engine_;
};

// Runs `body` under the interleavings that `options` ask for, up to the first failure. Throws Error
// for bad options or a string to replay that is not one.
Result Explore(const Options& options, absl::FunctionRef<void(Execution&)> body);

// Fails the execution unless `holds`. Within an exploration only.
void Check(bool holds, absl::string_view what, Where where = Where::current());

// One of 0 to count - 1: the exploration tries all. Within an exploration only.
int Choose(int count);

}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_EXPLORE_H_
