#include "tidepool/memory/recording/recorded_cycles.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>

namespace tidepool {
namespace {

using What = RecordEvent::What;

constexpr uint32_t kLeastRepetitions = 3;
// Of sizes, and of so many of them one after the other: where each size comes often in a cycle, runs of
// them do not. The longest ones are rare too where a tenth of the sizes are other ones.
constexpr size_t kRuns[] = {1, 8, 32};
constexpr size_t kMostDistances = 32;  // of each
constexpr size_t kMostGapsOfASize = 64;

// Where sizes[i] and sizes[i + period] are the same for as long as can be: another one costs as much
// as nine that are.
Repetition At(const std::vector<uint64_t>& sizes, uint32_t period, int64_t* score) {
  constexpr int64_t kOther = -9;
  int64_t best = 0, now = 0;
  uint32_t begin = 0, best_begin = 0, best_end = 0;
  for (uint32_t i = 0; i + period < sizes.size(); ++i) {
    if (now <= 0) {
      now = 0;
      begin = i;
    }
    now += sizes[i] == sizes[i + period] ? 1 : kOther;
    if (now > best) {
      best = now;
      best_begin = begin;
      best_end = i + 1 + period;
    }
  }
  *score = best;
  const uint32_t whole = (best_end - best_begin) / period * period;
  if (whole / period < kLeastRepetitions) return {};
  return {period, best_begin, best_begin + whole};
}

// A number for each run of `length` sizes, the same for the same. Of no more than some of a long record:
// where nothing repeats, each of them is one more entry of a table.
std::vector<uint64_t> RunsOf(const std::vector<uint64_t>& all, size_t length) {
  constexpr size_t kMost = 1 << 20;
  if (length == 1) return all;
  const auto begin =
      all.begin() + static_cast<ptrdiff_t>(all.size() > kMost ? (all.size() - kMost) / 2 : 0);
  const std::vector<uint64_t> sizes(begin, all.size() > kMost ? begin + kMost : all.end());
  constexpr uint64_t kBase = 0x9e3779b97f4a7c15;
  uint64_t leaves = 1;  // the factor of the size that goes
  for (size_t i = 0; i < length; ++i) leaves *= kBase;
  std::vector<uint64_t> runs;
  uint64_t run = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    run = run * kBase + sizes[i];
    if (i >= length) run -= leaves * sizes[i - length];
    if (i + 1 >= length) runs.push_back(run);
  }
  return runs;
}

// The most common distances between the same sizes, or runs of them: those of rare ones, which come once
// or twice in a cycle, are its length.
void AddDistances(const std::vector<uint64_t>& sizes, std::vector<uint32_t>* distances) {
  std::unordered_map<uint64_t, std::vector<uint32_t>> places;
  for (uint32_t i = 0; i < sizes.size(); ++i) places[sizes[i]].push_back(i);
  std::map<uint32_t, uint64_t> weight;
  for (const auto& [size, at] : places) {
    if (at.size() < kLeastRepetitions) continue;
    // A size that comes often says little of each distance.
    const uint64_t each = 1 + sizes.size() / at.size();
    const size_t from = at.size() / 3;  // beyond what only happens at the beginning
    for (size_t step = 1; step <= 4; ++step) {
      for (size_t i = from; i + step < std::min(at.size(), from + kMostGapsOfASize); ++i) {
        weight[at[i + step] - at[i]] += each;
      }
    }
  }
  std::vector<std::pair<uint64_t, uint32_t>> sorted;
  for (const auto& [distance, of] : weight) sorted.emplace_back(of, distance);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (size_t i = 0; i < std::min(sorted.size(), kMostDistances); ++i)
    distances->push_back(sorted[i].second);
}

// The shortest first.
std::vector<uint32_t> Distances(const std::vector<uint64_t>& sizes) {
  std::vector<uint32_t> distances;
  for (const size_t length : kRuns) AddDistances(RunsOf(sizes, length), &distances);
  std::sort(distances.begin(), distances.end());
  distances.erase(std::unique(distances.begin(), distances.end()), distances.end());
  return distances;
}

void FindByMarks(const Record& record, RecordedCycles& found) {
  // By name and generation.
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> open;
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    const RecordEvent& event = record.events[i];
    if (event.what == What::kCycleBegin) {
      found.by_marks = true;
      if (!open.emplace(std::pair(event.owner, event.bytes), i).second) ++found.elsewhere;
    } else if (event.what == What::kCycleEnd) {
      const auto begin = open.find({event.owner, event.bytes});
      if (begin == open.end()) continue;  // it began before the record
      if (record.events[begin->second].thread == event.thread) {
        found.cycles.push_back({event.thread, event.owner, begin->second, i});
      } else {
        ++found.elsewhere;
      }
      open.erase(begin);
    }
  }
  found.elsewhere += open.size();
  std::sort(found.cycles.begin(), found.cycles.end(),
            [](const RecordedCycle& a, const RecordedCycle& b) { return a.begin < b.begin; });
  // Those of one thread must be nested as scopes are.
  std::map<uint32_t, std::vector<uint32_t>> ends;
  std::erase_if(found.cycles, [&](const RecordedCycle& cycle) {
    std::vector<uint32_t>& of_thread = ends[cycle.thread];
    while (!of_thread.empty() && of_thread.back() < cycle.begin) of_thread.pop_back();
    if (!of_thread.empty() && of_thread.back() < cycle.end) {
      ++found.elsewhere;
      return true;
    }
    of_thread.push_back(cycle.end);
    return false;
  });
}

// How many blocks of the repetition are alive across the places `phase`, `phase` + period and so on.
uint32_t BestPhase(const Repetition& repetition, const std::vector<uint32_t>& blocks,
                   const std::vector<uint32_t>& made_before) {
  std::vector<int64_t> change(repetition.period + 1);
  int64_t always = 0;
  for (uint32_t i = repetition.begin; i < repetition.end; ++i) {
    // Released behind so many allocations of its thread: it crosses the places from i + 1 on.
    const uint64_t until = std::min(made_before[blocks[i]], repetition.end);
    if (until <= i + 1) continue;
    const uint64_t length = until - (i + 1);
    always += static_cast<int64_t>(length / repetition.period);
    const auto rest = static_cast<uint32_t>(length % repetition.period);
    const uint32_t from = (i + 1 - repetition.begin) % repetition.period;
    // The places from .. from + rest - 1, around the end.
    ++change[from];
    if (from + rest <= repetition.period) {
      --change[from + rest];
    } else {
      --change[repetition.period];
      ++change[0];
      --change[from + rest - repetition.period];
    }
  }
  uint32_t best = 0;
  int64_t least = INT64_MAX, now = 0;
  for (uint32_t phase = 0; phase < repetition.period; ++phase) {
    now += change[phase];
    if (now < least) {
      least = now;
      best = phase;
    }
  }
  return best;
}

void FindByPeriod(const Record& record, const RecordedBlocks& blocks, RecordedCycles& found) {
  std::map<uint32_t, std::vector<uint32_t>> made;  // of each thread, in order
  for (uint32_t block = 0; block < blocks.blocks.size(); ++block) {
    made[record.events[blocks.blocks[block].made].thread].push_back(block);
  }
  // By block: how many allocations its thread had made when it was released.
  std::vector<uint32_t> made_before(blocks.blocks.size(), UINT32_MAX);
  std::map<uint32_t, uint32_t> count;
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    const uint32_t block = blocks.block_of[i];
    if (block == RecordedBlock::kNever) continue;
    if (record.events[i].what == What::kAllocate) {
      ++count[record.events[i].thread];
    } else {
      made_before[block] = count[record.events[blocks.blocks[block].made].thread];
    }
  }
  size_t most = 0;
  for (const auto& [thread, of_thread] : made) {
    std::vector<uint64_t> sizes;
    sizes.reserve(of_thread.size());
    for (const uint32_t block : of_thread) {
      const RecordEvent& event = record.events[blocks.blocks[block].made];
      sizes.push_back(event.bytes << 6 ^ event.alignment_log2);
    }
    const Repetition repetition = FindRepetition(sizes);
    if (repetition.period == 0) continue;
    const uint32_t first = repetition.begin + BestPhase(repetition, of_thread, made_before);
    size_t cycles = 0;
    for (uint32_t at = first; at + repetition.period <= repetition.end; at += repetition.period) {
      const uint32_t next = at + repetition.period;
      RecordedCycle cycle = {.thread = thread, .begin = blocks.blocks[of_thread[at]].made};
      // Before the next allocation of the thread; the last one ends behind its last release of its own.
      if (next < of_thread.size()) {
        cycle.end = blocks.blocks[of_thread[next]].made;
      } else {
        cycle.end = static_cast<uint32_t>(record.events.size());
      }
      found.cycles.push_back(cycle);
      ++cycles;
    }
    if (cycles > most) {
      most = cycles;
      found.period = repetition.period;
    }
  }
  std::sort(found.cycles.begin(), found.cycles.end(),
            [](const RecordedCycle& a, const RecordedCycle& b) { return a.begin < b.begin; });
}

}  // namespace

Repetition FindRepetition(const std::vector<uint64_t>& sizes) {
  Repetition best;
  int64_t best_score = 0;
  for (const uint32_t distance : Distances(sizes)) {
    int64_t score;
    const Repetition found = At(sizes, distance, &score);
    if (found.period == 0) continue;
    // A longer one is better where clearly more repeats. Twice a period repeats as well, and where the
    // other sizes come at some distance it may by chance be a better one.
    if (best.period != 0) {
      const int64_t more = distance % best.period == 0 ? best_score / 2 : best_score / 20;
      if (score <= best_score + more) continue;
    }
    best = found;
    best_score = score;
  }
  // Most of what there is.
  if (best_score < static_cast<int64_t>(sizes.size() / 2)) return {};
  return best;
}

RecordedCycles FindCycles(const Record& record, const RecordedBlocks& blocks) {
  RecordedCycles found;
  FindByMarks(record, found);
  if (!found.by_marks) FindByPeriod(record, blocks, found);
  found.cycle_of.assign(blocks.blocks.size(), RecordedCycles::kNone);
  found.made_in = found.cycle_of;
  // Walks the events with each thread's open cycles.
  std::map<uint32_t, std::vector<uint32_t>> open;
  uint32_t next = 0;
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    for (; next < found.cycles.size() && found.cycles[next].begin == i; ++next) {
      std::vector<uint32_t>& of_thread = open[found.cycles[next].thread];
      while (!of_thread.empty() && found.cycles[of_thread.back()].end <= i) of_thread.pop_back();
      of_thread.push_back(next);
    }
    if (record.events[i].what != What::kAllocate) continue;
    const auto of_thread = open.find(record.events[i].thread);
    if (of_thread == open.end()) continue;
    std::vector<uint32_t>& cycles = of_thread->second;
    while (!cycles.empty() && found.cycles[cycles.back()].end <= i) cycles.pop_back();
    if (cycles.empty()) continue;
    const uint32_t block = blocks.block_of[i];
    const uint32_t freed = blocks.blocks[block].freed;
    found.made_in[block] = cycles.back();
    if (freed != RecordedBlock::kNever && freed < found.cycles[cycles.back()].end) {
      found.cycle_of[block] = cycles.back();
      ++found.in_cycles;
    } else {
      ++found.outliving;
    }
  }
  return found;
}

}  // namespace tidepool
