// The memory model of C++20 as the standard has it, by enumeration: for tests of the explorer.
//
// A candidate execution says which store each load reads and in which order the stores to each
// variable stand. The axioms say which candidates are executions. Nothing here runs anything.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_AXIOMS_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_AXIOMS_H_

#include <atomic>
#include <set>
#include <string>
#include <vector>

namespace tidepool::explorer {

enum class EventKind { kLoad, kStore, kExchange, kFence };

struct Event {
  EventKind kind;
  int variable;  // 0 or 1; of a fence nothing
  std::memory_order order;
  int stored;  // not 0, and no other event stores it
};

// The events of each thread in order.
using Program = std::vector<std::vector<Event>>;

// What the loads and exchanges read, thread by thread, and what the variables hold in the end.
std::string Outcome(const std::vector<int>& read, const std::vector<int>& last);

enum class Axioms {
  // As the standard has it, but that no load reads from the future (program order and reads-from
  // have no cycle).
  kStandard,
  // Moreover the total order of seq_cst operations agrees with happens-before, as before C++20.
  kOrderAgreesWithHappensBefore,
};

// What the axioms allow; at most 12 events.
std::set<std::string> OutcomesByAxioms(const Program& program, Axioms axioms);

std::string ToText(const Program& program);

}  // namespace tidepool::explorer

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_AXIOMS_H_
