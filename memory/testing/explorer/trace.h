// What happened in one execution, for people.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_TRACE_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_TRACE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer::internal {

// "T1", or "the body".
std::string ThreadName(int slot);

class Trace {
 public:
  void Clear() {
    events_.clear();
    names_.clear();
    pointers_.clear();
  }
  void Add(int slot, std::string text, const Where& where) {
    events_.push_back({slot, std::move(text), ToText(where)});
  }
  // A variable made, "a1" and where.
  void AddName(std::string name, const Where& where) {
    names_.push_back({std::move(name), ToText(where)});
  }
  // Makes PointerName(address) "n1", "n2", ...; others are numbers.
  void AddPointer(uint64_t address) { pointers_.push_back(address); }
  std::string PointerName(uint64_t address) const;
  bool empty() const { return events_.empty(); }

  // A column per thread side by side (set-up and end are in the first), then where each variable
  // was made. Long traces lose their middle.
  std::string Text() const;

 private:
  struct Event {
    int slot;
    std::string text;
    std::string where;
  };
  std::vector<Event> events_;
  std::vector<std::pair<std::string, std::string>> names_;
  std::vector<uint64_t> pointers_;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_TRACE_H_
