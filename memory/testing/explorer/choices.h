// The choices that make up one execution, and the search through all of them.
//
// An execution is a function of its choices: which thread goes next, which store a load reads, and
// so on. The search has no other state: it runs the program again with a prefix of the last
// execution's choices and a new one behind it (stateless, depth first).
//
// Text of a vector of choices: 0-9 and A-Z are 0 to 35, a lower-case letter stands for a run of
// zeros (a: 1, z: 26), "(40)" is 40. Zeros at the end are left out: they are what is chosen anyway.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_CHOICES_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_CHOICES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::explorer::internal {

class Choices {
 public:
  enum class Source { kSearch, kRandom };

  // Forgets everything and begins a search, or a series of random executions.
  void Begin(Source source, uint64_t seed);
  // The next executions all choose as `text` says, and 0 behind it. Throws Error for bad text.
  void BeginReplay(const std::string& text);
  // The next execution repeats the last one.
  void Repeat() {
    source_ = Source::kSearch;
    position_ = 0;
    free_run_ = false;
  }

  void BeginExecution();

  // Something happened that happens again when the execution is repeated.
  void CountEvent() { ++events_; }
  uint32_t events() const { return events_; }

  // One of 0 to count - 1; those without a bit in `allowed` are not worth exploring. At least one
  // of the first 32 must be. Sets inconsistent() if a repeated execution offers something else, or after
  // another number of events.
  uint32_t Choose(uint32_t count, uint32_t allowed = ~uint32_t{0}) {
    if (position_ < entries_.size()) return Repeated(count, allowed);
    return Chosen(count, allowed);
  }
  // Keeps `chosen`, which was chosen in some other way, as a random choice.
  void Record(uint32_t chosen, uint32_t count);
  // What the execution found out about itself and cannot be chosen otherwise: it is asked `find` once
  // and told the same when the execution is repeated, also by a text.
  template <typename Find>
  bool Decide(const Find& find) {
    if (position_ < entries_.size()) return Repeated(2, ~uint32_t{0}) != 0;
    const uint32_t found = !from_text_ && find() ? 1 : 0;
    entries_.push_back({found, 2, uint32_t{1} << found, events_});
    ++position_;
    return found != 0;
  }
  // A random number, for choosing in some other way. Not for a search.
  uint64_t Random() { return random_ = Mix(random_ + 0x9e3779b97f4a7c15u); }
  bool is_random() const { return source_ == Source::kRandom; }

  // From here to the end of the execution 0 is chosen and nothing explored: everything behind was
  // seen in another execution.
  void FreeRun() { free_run_ = true; }
  bool free_run() const { return free_run_; }

  // Goes to the next execution of the search; false when there is none.
  bool Advance();

  bool repeating() const { return position_ < entries_.size(); }
  bool inconsistent() const { return inconsistent_; }
  // Choices with more than one way in the last execution, and what it found out.
  int64_t depth() const { return static_cast<int64_t>(position_); }
  std::string Text() const;

 private:
  struct Entry {
    uint32_t chosen;
    uint32_t count;  // 0 where a text gave the choice
    uint32_t allowed;
    uint32_t events;  // that came before
  };

  uint32_t Repeated(uint32_t count, uint32_t allowed);
  uint32_t Chosen(uint32_t count, uint32_t allowed);
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  Source source_ = Source::kSearch;
  std::vector<Entry> entries_;
  size_t position_ = 0;
  uint32_t events_ = 0;
  bool free_run_ = false;
  bool inconsistent_ = false;
  bool from_text_ = false;
  uint64_t random_ = 0;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_CHOICES_H_
