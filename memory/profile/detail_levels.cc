#include "tidepool/memory/profile/detail_levels.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/profile/merged_owners.h"

namespace tidepool {
namespace {

constexpr int64_t kWindows = 64;
constexpr int64_t kMergedSpans = 16;    // of a cycle, at most
constexpr int64_t kRequestsASpan = 40;  // that are merged

// Bytes times nanoseconds, of any size.
double Weight(const ProfileArray& array, int64_t end) {
  const int64_t until = std::min(array.died, end);
  return static_cast<double>(array.taken) *
         static_cast<double>(std::max<int64_t>(1, until - array.born));
}

// The `limit` of `arrays` that weigh most in their window, by index, in order.
std::vector<size_t> Largest(const std::vector<ProfileArray>& arrays, int64_t duration,
                            size_t limit) {
  std::vector<size_t> order(arrays.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto window = [&](size_t i) {
    const double share =
        static_cast<double>(arrays[i].born) / static_cast<double>(std::max<int64_t>(1, duration));
    return std::clamp<int64_t>(static_cast<int64_t>(share * kWindows), 0, kWindows - 1);
  };
  std::vector<std::vector<size_t>> windows(kWindows);
  for (const size_t i : order) windows[window(i)].push_back(i);
  // Windows with few arrays leave their share to the others.
  size_t left = limit;
  std::sort(windows.begin(), windows.end(),
            [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::vector<size_t> kept;
  for (int64_t w = 0; w < kWindows; ++w) {
    std::vector<size_t>& in = windows[w];
    const size_t share = std::min(in.size(), left / static_cast<size_t>(kWindows - w));
    std::partial_sort(in.begin(), in.begin() + static_cast<ptrdiff_t>(share), in.end(),
                      [&](size_t a, size_t b) {
                        const double weight_a = Weight(arrays[a], duration),
                                     weight_b = Weight(arrays[b], duration);
                        return weight_a != weight_b ? weight_a > weight_b : a < b;
                      });
    kept.insert(kept.end(), in.begin(), in.begin() + static_cast<ptrdiff_t>(share));
    left -= share;
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

void ReduceArrays(ProfileData& data, size_t limit) {
  if (data.arrays.size() <= limit) return;
  std::vector<ProfileArray> kept;
  for (const size_t i : Largest(data.arrays, data.duration, limit)) kept.push_back(data.arrays[i]);
  data.notes.push_back(
      absl::StrCat(data.arrays.size() - kept.size(), " of ", data.arrays.size(),
                   " arrays outside of cycles are in the totals only; the largest are here"));
  data.arrays = std::move(kept);
}

void ReduceSteps(ProfileData& data, size_t limit) {
  if (data.steps.size() <= limit || data.steps.empty()) return;
  using Key = std::tuple<uint32_t, uint32_t, uint8_t>;  // device, owner, kind
  std::map<Key, int64_t> now, written;
  std::map<uint32_t, int64_t> total;
  for (const ProfileStep& step : data.steps) now[{step.device, step.owner, step.kind}];
  const size_t spans = std::max<size_t>(1, limit / (2 * std::max<size_t>(1, now.size())));
  std::vector<ProfileStep> steps;
  const auto write = [&](int64_t time, const std::map<Key, int64_t>& values, uint32_t device) {
    for (const auto& [key, value] : values) {
      if (std::get<0>(key) != device) continue;
      int64_t& before = written[key];
      if (value == before) continue;
      steps.push_back({time, value - before, device, std::get<1>(key), std::get<2>(key), false});
      before = value;
    }
  };
  const size_t count = data.steps.size();
  size_t i = 0;
  for (; i < count && data.steps[i].at_start; ++i) {
    const ProfileStep& step = data.steps[i];
    now[{step.device, step.owner, step.kind}] += step.bytes;
    written[{step.device, step.owner, step.kind}] += step.bytes;
    total[step.device] += step.bytes;
    steps.push_back(step);
  }
  const int64_t width = std::max<int64_t>(1, data.duration / static_cast<int64_t>(spans) + 1);
  while (i < count) {
    const int64_t begin = data.steps[i].time, span = begin / width, end = (span + 1) * width;
    std::map<uint32_t, std::pair<int64_t, std::map<Key, int64_t>>> highest;  // by device
    size_t j = i;
    std::map<uint32_t, int64_t> most;
    for (int pass = 0; pass < 2; ++pass) {
      auto values = now;
      auto totals = total;
      if (pass == 0) most.clear();
      for (j = i; j < count && data.steps[j].time < end; ++j) {
        const ProfileStep& step = data.steps[j];
        values[{step.device, step.owner, step.kind}] += step.bytes;
        int64_t& sum = totals[step.device];
        sum += step.bytes;
        if (pass == 0) {
          const auto [found, is_new] = most.try_emplace(step.device, sum);
          found->second = std::max(found->second, sum);
        } else if (sum == most[step.device] && !highest.contains(step.device)) {
          highest[step.device] = {sum, values};
        }
      }
      if (pass == 1) {
        for (const auto& [device, peak] : highest) write(begin, peak.second, device);
        const int64_t last = data.steps[j - 1].time;
        for (const auto& [device, peak] : highest) write(last, values, device);
        now = std::move(values);
        total = std::move(totals);
      }
    }
    i = j;
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const ProfileStep& a, const ProfileStep& b) { return a.time < b.time; });
  data.notes.push_back(
      absl::StrCat(count, " changes of the ledger are merged into ", steps.size(),
                   ": in each span of time the highest moment and the last are kept"));
  data.steps = std::move(steps);
}

void ReduceCycles(ProfileData& data, size_t limit) {
  if (data.cycles.size() <= limit) return;
  const size_t before = data.cycles.size();
  const auto place_of = [&](const ProfileCycles& cycles) {
    return data.cycle_kinds[cycles.kind].place;
  };
  // Neighbours of one kind, as many together as it takes.
  for (size_t together = 2; data.cycles.size() > limit && together < 2 * before; together *= 2) {
    std::vector<ProfileCycles> kept;
    std::map<uint32_t, size_t> last;  // by place
    for (const ProfileCycles& cycles : data.cycles) {
      const auto found = last.find(place_of(cycles));
      if (found != last.end()) {
        ProfileCycles& previous = kept[found->second];
        if (previous.kind == cycles.kind && previous.count + cycles.count <= together) {
          previous.count += cycles.count;
          previous.end = cycles.end;
          continue;
        }
      }
      last[place_of(cycles)] = kept.size();
      kept.push_back(cycles);
    }
    data.cycles = std::move(kept);
  }
  // Of different kinds: the one that took most stands for its neighbours.
  while (data.cycles.size() > limit) {
    std::vector<ProfileCycles> kept;
    std::map<uint32_t, std::pair<size_t, int>> last;
    for (const ProfileCycles& cycles : data.cycles) {
      const auto found = last.find(place_of(cycles));
      if (found != last.end() && found->second.second % 2 == 1) {
        ProfileCycles& previous = kept[found->second.first];
        if (data.cycle_kinds[cycles.kind].bound > data.cycle_kinds[previous.kind].bound) {
          previous.kind = cycles.kind;
          previous.first_generation = cycles.first_generation;
        }
        previous.count += cycles.count;
        previous.end = cycles.end;
        ++found->second.second;
        continue;
      }
      last[place_of(cycles)] = {kept.size(), found == last.end() ? 1 : found->second.second + 1};
      kept.push_back(cycles);
    }
    if (kept.size() == data.cycles.size()) break;
    data.cycles = std::move(kept);
  }
  data.notes.push_back(absl::StrCat(before, " entries of cycles are shown as ", data.cycles.size(),
                                    "; of neighbours that differ the largest stands for all"));
}

void DropUnusedKinds(ProfileData& data) {
  std::vector<uint32_t> numbers(data.cycle_kinds.size(), UINT32_MAX);
  std::vector<ProfileCycleKind> kept;
  for (ProfileCycles& cycles : data.cycles) {
    uint32_t& number = numbers[cycles.kind];
    if (number == UINT32_MAX) {
      number = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(data.cycle_kinds[cycles.kind]));
    }
    cycles.kind = number;
  }
  data.cycle_kinds = std::move(kept);
}

// What stands for the requests that are not kept.
void MergeRest(const std::vector<ProfileArray>& rest, ProfileCycleKind& kind, uint32_t name,
               int64_t spans) {
  std::map<uint32_t, std::vector<std::pair<int64_t, int64_t>>> changes;  // by owner: time, bytes
  for (const ProfileArray& request : rest) {
    auto& of_owner = changes[spans == 1 ? kind.owner : request.owner];
    of_owner.push_back({request.born, request.taken});
    if (request.died < kind.duration) of_owner.push_back({request.died, -request.taken});
  }
  const int64_t width = std::max<int64_t>(1, kind.duration / spans + 1);
  for (auto& [owner, of_owner] : changes) {
    std::stable_sort(of_owner.begin(), of_owner.end(),
                     [](auto& a, auto& b) { return a.first < b.first; });
    int64_t now = 0;
    size_t i = 0;
    for (int64_t begin = 0; begin < std::max<int64_t>(1, kind.duration); begin += width) {
      int64_t most = now;
      for (; i < of_owner.size() && of_owner[i].first < begin + width; ++i) {
        now += of_owner[i].second;
        most = std::max(most, now);
      }
      if (most == 0) continue;
      ProfileArray merged;
      merged.born = begin;
      merged.died = std::min(begin + width, kind.duration);
      merged.bytes = merged.taken = most;
      merged.owner = owner;
      merged.place = kind.place;
      merged.name = name;
      merged.kind = rest.front().kind;
      merged.flags = ProfileArray::kOutside;
      kind.requests.push_back(merged);
      kind.released_after.push_back(0);
    }
  }
}

void ReduceRequests(ProfileData& data, size_t limit) {
  size_t all = 0;
  for (const ProfileCycleKind& kind : data.cycle_kinds) all += kind.requests.size();
  if (all <= limit) return;
  // How long each kind ran, times what it took.
  std::vector<double> weights(data.cycle_kinds.size());
  for (const ProfileCycles& cycles : data.cycles) {
    weights[cycles.kind] += static_cast<double>(cycles.end - cycles.begin + 1) *
                            static_cast<double>(data.cycle_kinds[cycles.kind].peak + 1);
  }
  std::vector<size_t> order(data.cycle_kinds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  data.strings.push_back("(smaller arrays, merged)");
  const auto merged_name = static_cast<uint32_t>(data.strings.size() - 1);
  size_t left = limit, merged = 0;
  for (size_t n = 0; n < order.size(); ++n) {
    ProfileCycleKind& kind = data.cycle_kinds[order[n]];
    const size_t share = std::max<size_t>(left / 2, left / (order.size() - n));
    if (kind.requests.size() <= share) {
      left -= kind.requests.size();
      continue;
    }
    const std::vector<size_t> kept = Largest(kind.requests, kind.duration, share);
    std::vector<ProfileArray> requests, rest;
    std::vector<uint32_t> released_after;
    size_t next = 0;
    for (size_t i = 0; i < kind.requests.size(); ++i) {
      if (next < kept.size() && kept[next] == i) {
        requests.push_back(kind.requests[i]);
        released_after.push_back(kind.released_after[i]);
        ++next;
      } else {
        rest.push_back(kind.requests[i]);
      }
    }
    left -= requests.size();
    merged += rest.size();
    kind.requests = std::move(requests);
    kind.released_after = std::move(released_after);
    const auto few = static_cast<int64_t>(rest.size()) / kRequestsASpan;
    MergeRest(rest, kind, merged_name, std::clamp<int64_t>(few, 1, kMergedSpans));
  }
  data.notes.push_back(absl::StrCat(
      merged, " of ", all, " requests of cycles are merged by owner; the largest are here"));
}

// Names beyond the limit go, the longest first: those of call stacks.
void ReduceStrings(ProfileData& data, size_t limit) {
  size_t bytes = 0;
  for (const std::string& text : data.strings) bytes += text.size() + 3;
  if (bytes <= limit) return;
  DropUnusedStrings(data);
  bytes = 0;
  for (const std::string& text : data.strings) bytes += text.size() + 3;
  if (bytes <= limit) return;
  constexpr size_t kShort = 120;
  size_t cut = 0;
  for (std::string& text : data.strings) {
    if (text.size() <= kShort) continue;
    // Within a code point it ends before it.
    size_t end = kShort;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end) + "...";
    ++cut;
  }
  bytes = 0;
  for (size_t i = 0; i < data.strings.size(); ++i) {
    bytes += data.strings[i].size() + 3;
    if (bytes > limit) data.strings[i] = "...";
  }
  data.notes.push_back(absl::StrCat(cut, " long names are cut"));
}

}  // namespace

ProfileData Reduced(const ProfileData& data, const DetailLimits& limits) {
  ProfileData reduced = data;
  MergeOwners(reduced, limits.owners);
  ReduceArrays(reduced, limits.arrays);
  ReduceSteps(reduced, limits.steps);
  ReduceCycles(reduced, limits.cycles);
  DropUnusedKinds(reduced);
  ReduceRequests(reduced, limits.requests);
  ReduceStrings(reduced, limits.string_bytes);
  return reduced;
}

}  // namespace tidepool
