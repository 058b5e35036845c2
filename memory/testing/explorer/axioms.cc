#include "tidepool/memory/testing/explorer/axioms.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/sites.h"

namespace tidepool::explorer {
namespace {

constexpr int kVariables = 2;
constexpr int kMost = 16;

// A relation between events.
struct Relation {
  std::array<uint32_t, kMost> rows = {};
  bool has(int a, int b) const { return (rows[a] >> b & 1) != 0; }
  void add(int a, int b) { rows[a] |= 1u << b; }
  void add(const Relation& other) {
    for (int i = 0; i < kMost; ++i) rows[i] |= other.rows[i];
  }
  void close() {
    for (int k = 0; k < kMost; ++k) {
      for (int i = 0; i < kMost; ++i) {
        if (has(i, k)) rows[i] |= rows[k];
      }
    }
  }
  bool has_cycle() const {
    Relation closed = *this;
    closed.close();
    for (int i = 0; i < kMost; ++i) {
      if (closed.has(i, i)) return true;
    }
    return false;
  }
};

// The first stores of the variables are events 0 and 1, before all others.
class Enumeration {
 public:
  Enumeration(const Program& program, Axioms axioms) : axioms_(axioms) {
    for (int v = 0; v < kVariables; ++v) {
      events_.push_back({EventKind::kStore, v, std::memory_order_relaxed, 0});
    }
    for (const std::vector<Event>& thread : program) {
      const int first = count();
      for (const Event& event : thread) {
        for (int v = 0; v < kVariables; ++v) before_.add(v, count());
        for (int i = first; i < count(); ++i) before_.add(i, count());
        events_.push_back(event);
      }
    }
    source_.resize(events_.size(), -1);
  }

  std::set<std::string> Run() {
    ChooseSources(0);
    return std::move(outcomes_);
  }

 private:
  int count() const { return static_cast<int>(events_.size()); }
  bool reads(int i) const {
    return events_[i].kind == EventKind::kLoad || events_[i].kind == EventKind::kExchange;
  }
  bool writes(int i) const {
    return events_[i].kind == EventKind::kStore || events_[i].kind == EventKind::kExchange;
  }
  bool fence(int i) const { return events_[i].kind == EventKind::kFence; }
  bool sequential(int i) const { return events_[i].order == std::memory_order_seq_cst; }
  bool releases(int i) const {
    const std::memory_order order = events_[i].order;
    return (writes(i) || fence(i)) &&
           (order == std::memory_order_release || order == std::memory_order_acq_rel ||
            order == std::memory_order_seq_cst);
  }
  bool acquires(int i) const {
    const std::memory_order order = events_[i].order;
    return (reads(i) || fence(i)) &&
           (order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
            order == std::memory_order_seq_cst);
  }

  void ChooseSources(int i) {
    if (i == count()) return ChooseOrders(0);
    if (!reads(i)) return ChooseSources(i + 1);
    for (int w = 0; w < count(); ++w) {
      if (w == i || !writes(w) || events_[w].variable != events_[i].variable) continue;
      source_[i] = w;
      ChooseSources(i + 1);
    }
  }

  void ChooseOrders(int variable) {
    if (variable == kVariables) return Judge();
    std::vector<int>& order = orders_[variable];
    order.clear();
    for (int i = 0; i < count(); ++i) {
      if (writes(i) && events_[i].variable == variable) order.push_back(i);
    }
    // The first store stays the first.
    do {
      if (UpdatesFollowTheirSources(order)) ChooseOrders(variable + 1);
    } while (std::next_permutation(order.begin() + 1, order.end()));
  }

  bool UpdatesFollowTheirSources(const std::vector<int>& order) const {
    for (size_t i = 1; i < order.size(); ++i) {
      if (reads(order[i]) && source_[order[i]] != order[i - 1]) return false;
    }
    return true;
  }

  // [intro.races], [atomics.order], [atomics.fences].
  void Judge() {
    Relation reads_from, modification, from_read;
    for (const std::vector<int>& order : orders_) {
      for (size_t a = 0; a < order.size(); ++a) {
        for (size_t b = a + 1; b < order.size(); ++b) modification.add(order[a], order[b]);
      }
    }
    for (int r = 0; r < count(); ++r) {
      if (!reads(r)) continue;
      reads_from.add(source_[r], r);
      for (int w = 0; w < count(); ++w) {
        if (w != r && modification.has(source_[r], w)) from_read.add(r, w);
      }
    }
    Relation causal = before_;
    causal.add(reads_from);
    if (causal.has_cycle()) return;

    Relation synchronizes = SynchronizesWith();
    Relation happens = before_;
    happens.add(synchronizes);
    happens.close();
    Relation coherence = reads_from;  // coherence-ordered before
    coherence.add(modification);
    coherence.add(from_read);
    coherence.close();
    for (int a = 0; a < count(); ++a) {
      for (int b = 0; b < count(); ++b) {
        if (happens.has(a, b) && (a == b || coherence.has(b, a))) return;
      }
    }
    Relation order =
        axioms_ == Axioms::kStandard ? StronglyHappensBefore(synchronizes, happens) : causal;
    AddTotalOrderOf(coherence, happens, order);
    if (order.has_cycle()) return;

    std::vector<int> read, last;
    for (int i = 0; i < count(); ++i) {
      if (reads(i)) read.push_back(events_[source_[i]].stored);
    }
    for (const std::vector<int>& stores : orders_) last.push_back(events_[stores.back()].stored);
    outcomes_.insert(Outcome(read, last));
  }

  Relation SynchronizesWith() const {
    Relation synchronizes;
    for (int w = 0; w < count(); ++w) {
      if (!writes(w)) continue;
      for (int r = 0; r < count(); ++r) {
        if (!reads(r) || !InReleaseSequence(w, source_[r])) continue;
        for (int a = 0; a < count(); ++a) {
          if (!releases(a) || (a != w && !(fence(a) && before_.has(a, w)))) continue;
          for (int b = 0; b < count(); ++b) {
            if (acquires(b) && (b == r || (fence(b) && before_.has(r, b)))) synchronizes.add(a, b);
          }
        }
      }
    }
    return synchronizes;
  }

  // Whether the release sequence that `head` would head has `w`.
  bool InReleaseSequence(int head, int w) const {
    while (w != head && reads(w)) w = source_[w];
    return w == head;
  }

  Relation StronglyHappensBefore(const Relation& synchronizes, const Relation& happens) const {
    Relation strong = before_;
    for (int a = 0; a < count(); ++a) {
      for (int b = 0; b < count(); ++b) {
        if (synchronizes.has(a, b) && sequential(a) && sequential(b)) strong.add(a, b);
        for (int c = 0; c < count(); ++c) {
          for (int d = 0; d < count(); ++d) {
            if (before_.has(a, c) && happens.has(c, d) && before_.has(d, b)) strong.add(a, b);
          }
        }
      }
    }
    return strong;
  }

  // [atomics.order]/4.
  void AddTotalOrderOf(const Relation& coherence, const Relation& happens, Relation& order) const {
    for (int a = 0; a < count(); ++a) {
      for (int b = 0; b < count(); ++b) {
        if (!coherence.has(a, b)) continue;
        for (int x = 0; x < count(); ++x) {
          const bool from = x == a ? sequential(a) : fence(x) && sequential(x) && happens.has(x, a);
          if (!from) continue;
          for (int y = 0; y < count(); ++y) {
            if (y == b ? sequential(b) : fence(y) && sequential(y) && happens.has(b, y))
              order.add(x, y);
          }
        }
      }
    }
  }

  const Axioms axioms_;
  std::vector<Event> events_;
  Relation before_;  // sequenced before; the first stores before all
  std::vector<int> source_;
  std::array<std::vector<int>, kVariables> orders_;
  std::set<std::string> outcomes_;
};

}  // namespace

std::string Outcome(const std::vector<int>& read, const std::vector<int>& last) {
  std::string text;
  for (int value : read) absl::StrAppend(&text, value, " ");
  text += "|";
  for (int value : last) absl::StrAppend(&text, " ", value);
  return text;
}

std::set<std::string> OutcomesByAxioms(const Program& program, Axioms axioms) {
  return Enumeration(program, axioms).Run();
}

std::string ToText(const Program& program) {
  std::string text;
  for (const std::vector<Event>& thread : program) {
    for (const Event& event : thread) {
      const char* variable = event.variable == 0 ? "x" : "y";
      switch (event.kind) {
        case EventKind::kLoad:
          absl::StrAppend(&text, variable, ".load ");
          break;
        case EventKind::kStore:
          absl::StrAppend(&text, variable, ".store ", event.stored, " ");
          break;
        case EventKind::kExchange:
          absl::StrAppend(&text, variable, ".exchange ", event.stored, " ");
          break;
        case EventKind::kFence:
          absl::StrAppend(&text, "fence ");
          break;
      }
      absl::StrAppend(&text, ToText(event.order), "; ");
    }
    text += "\n";
  }
  return text;
}

}  // namespace tidepool::explorer
