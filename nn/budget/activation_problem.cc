#include "tidepool/nn/budget/activation_problem.h"

#include <algorithm>

namespace tidepool::nn {
namespace {

// The clock of a plan.
struct Ticks {
  int layers = 0, loss = 0;
  std::vector<int> segment;           // by layer; of the loss the number of segments
  std::vector<int> begins;            // layers, by segment, and the end
  std::vector<int> again, gradients;  // by layer; `again` -1: it is not called again
  int loss_gradients = 0, count = 0;

  Ticks(const ActivationProblem& problem, const ActivationPlan& plan)
      : layers(static_cast<int>(problem.layers.size())) {
    loss = layers;
    loss_gradients = layers + 1;
    begins.push_back(0);
    segment.reserve(static_cast<size_t>(layers) + 1);
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      segment.insert(segment.end(), static_cast<size_t>(plan.segments[s].layers),
                     static_cast<int>(s));
      begins.push_back(begins.back() + plan.segments[s].layers);
    }
    segment.push_back(static_cast<int>(plan.segments.size()));
    begins.push_back(layers + 1);
    again.assign(static_cast<size_t>(layers), -1);
    gradients.assign(static_cast<size_t>(layers) + 1, loss_gradients);
    int tick = loss_gradients + 1;
    for (size_t s = plan.segments.size(); s-- > 0;) {
      if (plan.segments[s].recomputes()) {
        for (int i = begins[s]; i < begins[s + 1]; ++i) again[static_cast<size_t>(i)] = tick++;
      }
      for (int i = begins[s + 1]; i-- > begins[s];) gradients[static_cast<size_t>(i)] = tick++;
    }
    count = tick;
  }
  // The first tick of the backward pass that is the segment's.
  int BackAt(int s) const {
    const int first = begins[static_cast<size_t>(s)];
    if (first >= layers) return loss_gradients;
    const int computed = again[static_cast<size_t>(first)];
    return computed >= 0 ? computed
                         : gradients[static_cast<size_t>(begins[static_cast<size_t>(s) + 1] - 1)];
  }
  // The last one of its forward pass.
  int EndOf(int s) const { return begins[static_cast<size_t>(s) + 1] - 1; }
};

struct Transfer {
  int begin = 0,
      due =
          0;  // ticks: behind `begin` and at the end of `due` of a write, at the begin of both of a read
  int64_t bytes = 0;
};

// Puts what the plan does with each array on the clock.
class Timeline {
 public:
  Timeline(const ActivationProblem& problem, const ActivationPlan& plan)
      : problem_(problem),
        plan_(plan),
        ticks_(problem, plan),
        change_(static_cast<size_t>(ticks_.count) + 1, 0) {
    for (size_t a = 0; a < problem.arrays.size(); ++a) {
      const ActivationArray& array = problem.arrays[a];
      const SlicedActivations* const slice = SliceOf(SegmentOf(array.made));
      slice != nullptr ? PlaceSliced(array, slice->array_bytes[a]) : Place(array);
    }
  }

  ActivationCost Cost(std::vector<int64_t>* alive) {
    ActivationCost cost;
    AddLayers(alive, &cost);
    const int64_t file = plan_.spills() ? problem_.file_bytes : 0;
    cost.peak_bytes += problem_.constant_bytes + file;
    if (alive != nullptr) {
      for (int64_t& bytes : *alive) bytes += problem_.constant_bytes + file;
    }
    for (const Transfer& write : writes_) cost.spilled_bytes += write.bytes;
    AddTime(&cost);
    return cost;
  }

 private:
  bool Recomputes(int s) const {
    return static_cast<size_t>(s) < plan_.segments.size() &&
           plan_.segments[static_cast<size_t>(s)].recomputes();
  }
  bool Spills(int s) const {
    return static_cast<size_t>(s) < plan_.segments.size() &&
           plan_.segments[static_cast<size_t>(s)].spills();
  }
  bool Remakes(int s) const {
    return static_cast<size_t>(s) < plan_.segments.size() &&
           plan_.segments[static_cast<size_t>(s)].retention == Retention::kRemake;
  }
  // Null: of the whole batch.
  const SlicedActivations* SliceOf(int s) const {
    const int64_t examples = static_cast<size_t>(s) < plan_.segments.size()
                                 ? plan_.segments[static_cast<size_t>(s)].slice
                                 : 0;
    if (examples == 0) return nullptr;
    for (const SlicedActivations& slice : problem_.slices) {
      if (slice.examples == examples) return &slice;
    }
    return nullptr;
  }
  // Of the whole batch, while a segment's gradients are computed in slices: of its output, its input and its parameters.
  int64_t GradientBytes(int s) const {
    const int first = ticks_.begins[static_cast<size_t>(s)], last = ticks_.EndOf(s);
    // As large as what they are gradients of: those of the batch are not among the arrays.
    int64_t bytes = 0;
    for (const ActivationArray& array : problem_.arrays) {
      const bool is_output = array.made == last && array.used_until > last;
      const bool is_input =
          array.made < first &&
          std::find(array.input_of.begin(), array.input_of.end(), first) != array.input_of.end();
      if (is_output || is_input) bytes += array.bytes;
    }
    for (int i = first; i <= last; ++i)
      bytes += problem_.layers[static_cast<size_t>(i)].parameter_bytes;
    return bytes;
  }
  int SegmentOf(int layer) const { return ticks_.segment[static_cast<size_t>(layer)]; }
  void Add(int first, int last, int64_t bytes) {
    if (last < first) return;
    change_[static_cast<size_t>(first)] += bytes;
    change_[static_cast<size_t>(last) + 1] -= bytes;
  }

  // Of a segment in slices: what others have of it is made from its beginning on; the rest is there a slice at a time.
  void PlaceSliced(const ActivationArray& array, int64_t slice_bytes) {
    const int home = SegmentOf(array.made);
    ActivationArray part = array;
    part.bytes = slice_bytes;
    const bool leaves = array.used_until > ticks_.EndOf(home);
    if (leaves) {
      Add(ticks_.begins[static_cast<size_t>(home)], array.made, array.bytes);
      PlaceWhole(array);
    } else {
      PlaceWhole(part);
    }
    PlaceAgain(part, home);
  }

  void Place(const ActivationArray& array) {
    PlaceWhole(array);
    const int home = SegmentOf(array.made);
    if (Recomputes(home)) PlaceAgain(array, home);
  }

  void PlaceWhole(const ActivationArray& array) {
    const int home = SegmentOf(array.made);
    int held_until = array.used_until;
    int first_keeper = -1, last_keeper = -1,
        end = -1;  // segments, and the tick behind which nobody wants it
    const auto keep = [&](int s, int until) {
      if (first_keeper < 0 || s < first_keeper) {
        first_keeper = s;
        end = until;
      } else if (s == first_keeper) {
        end = std::max(end, until);
      }
      last_keeper = std::max(last_keeper, s);
    };
    for (const int layer : array.kept_by) {
      const int s = SegmentOf(layer);
      if (!Recomputes(s)) keep(s, ticks_.gradients[static_cast<size_t>(layer)]);
    }
    int seen = -1;
    for (const int layer : array.input_of) {
      const int s = SegmentOf(layer);
      if (s == seen || s == home || !Recomputes(s)) continue;
      seen = s;
      held_until = std::max(held_until, ticks_.EndOf(s));
      keep(s, LastUseAgain(array, s));
    }
    if (first_keeper < 0) {
      Add(array.made + 1, held_until, array.bytes);
    } else {
      PlaceKept(array, held_until, first_keeper, last_keeper, end);
    }
  }

  // Behind which the second run of a segment, and its gradients, have no use for its input.
  int LastUseAgain(const ActivationArray& array, int s) const {
    for (const int layer : array.kept_by) {
      if (SegmentOf(layer) == s) return ticks_.gradients[static_cast<size_t>(layer)];
    }
    return ticks_.again[static_cast<size_t>(ticks_.EndOf(s))];
  }

  void PlaceKept(const ActivationArray& array, int held_until, int first_keeper, int last_keeper,
                 int end) {
    if (Remakes(first_keeper) && array.can_remake) {
      const int at = ticks_.gradients[static_cast<size_t>(array.kept_by.front())];
      return Add(at, at, array.bytes);
    }
    const int segments = static_cast<int>(plan_.segments.size());
    // Let go of at the end of this one, which is the loss at last.
    const int released =
        std::min(segments,
                 std::max({first_keeper + plan_.spill_behind, last_keeper, SegmentOf(held_until)}));
    const int read_at = ticks_.BackAt(std::min(segments, last_keeper + plan_.spill_ahead));
    if (!Spills(first_keeper) || !array.can_spill) return Add(array.made + 1, end, array.bytes);
    const int gone = ticks_.EndOf(released);
    Add(array.made + 1, gone, array.bytes);
    Add(read_at, end, array.bytes);
    const int64_t bytes = array.written_bytes > 0 ? array.written_bytes : array.bytes;
    writes_.push_back({ticks_.EndOf(first_keeper), gone, bytes});
    reads_.push_back({read_at, ticks_.BackAt(last_keeper), bytes});
  }

  // Made by the second run of its segment.
  void PlaceAgain(const ActivationArray& array, int home) {
    const int made = ticks_.again[static_cast<size_t>(array.made)];
    int until = made;
    for (const int layer : array.input_of) {
      if (SegmentOf(layer) == home)
        until = std::max(until, ticks_.again[static_cast<size_t>(layer)]);
    }
    if (array.used_until > ticks_.EndOf(home))
      until = std::max(until, ticks_.again[static_cast<size_t>(ticks_.EndOf(home))]);
    for (const int layer : array.kept_by) {
      if (SegmentOf(layer) == home) {
        until = std::max(until, ticks_.gradients[static_cast<size_t>(layer)]);
        break;
      }
    }
    Add(made + 1, until, array.bytes);
  }

  void AddLayers(std::vector<int64_t>* alive, ActivationCost* cost) {
    std::vector<int64_t> at(static_cast<size_t>(ticks_.count));
    int64_t sum = 0;
    for (size_t t = 0; t < at.size(); ++t) at[t] = sum += change_[t];
    int64_t of_segment = 0;  // gradients of one in slices
    for (int i = 0; i < ticks_.layers; ++i) {
      const SlicedActivations* const slice = SliceOf(SegmentOf(i));
      if (slice != nullptr && i == ticks_.begins[static_cast<size_t>(SegmentOf(i))])
        of_segment = GradientBytes(SegmentOf(i));
      const LayerActivations& layer =
          (slice != nullptr ? slice->layers : problem_.layers)[static_cast<size_t>(i)];
      int64_t& gradients = at[static_cast<size_t>(ticks_.gradients[static_cast<size_t>(i)])];
      at[static_cast<size_t>(i)] += layer.forward_bytes;
      gradients += layer.backward_bytes;
      const int again = ticks_.again[static_cast<size_t>(i)];
      if (again < 0) continue;
      const int last = ticks_.EndOf(SegmentOf(i));
      if (slice != nullptr) gradients += of_segment;
      at[static_cast<size_t>(again)] +=
          layer.forward_bytes + (slice != nullptr
                                     ? of_segment
                                     : problem_.layers[static_cast<size_t>(last)].gradient_bytes);
    }
    at[static_cast<size_t>(ticks_.loss)] += problem_.loss.forward_bytes;
    at[static_cast<size_t>(ticks_.loss_gradients)] += problem_.loss.backward_bytes;
    for (const int64_t bytes : at) cost->peak_bytes = std::max(cost->peak_bytes, bytes);
    if (alive != nullptr) *alive = std::move(at);
  }

  double SecondsOf(int tick, std::vector<int>& layer_at) const {
    const int layer = layer_at[static_cast<size_t>(tick)];
    const LayerActivations& of =
        layer == ticks_.layers ? problem_.loss : problem_.layers[static_cast<size_t>(layer)];
    const SlicedActivations* const slice = SliceOf(SegmentOf(layer));
    const double forward_factor = slice != nullptr ? slice->forward_factor : 1;
    if (tick <= ticks_.loss) return of.forward_seconds * forward_factor;
    if (layer < ticks_.layers && ticks_.again[static_cast<size_t>(layer)] == tick)
      return AgainSeconds(of) * forward_factor;
    return of.backward_seconds * (slice != nullptr ? slice->backward_factor : 1) +
           (Remakes(SegmentOf(layer)) ? of.remake_seconds : 0);
  }

  // One file, which does what was asked of it in that order.
  void AddTime(ActivationCost* cost) {
    std::vector<int> layer_at(static_cast<size_t>(ticks_.count), ticks_.layers);
    for (int i = 0; i < ticks_.layers; ++i) {
      layer_at[static_cast<size_t>(i)] = i;
      layer_at[static_cast<size_t>(ticks_.gradients[static_cast<size_t>(i)])] = i;
      const int again = ticks_.again[static_cast<size_t>(i)];
      if (Remakes(SegmentOf(i)))
        cost->recompute_seconds += problem_.layers[static_cast<size_t>(i)].remake_seconds;
      if (again < 0) continue;
      layer_at[static_cast<size_t>(again)] = i;
      cost->recompute_seconds += SecondsOf(again, layer_at);
    }
    const auto by_begin = [](const Transfer& a, const Transfer& b) { return a.begin < b.begin; };
    std::stable_sort(writes_.begin(), writes_.end(), by_begin);
    // Those that are needed first.
    std::stable_sort(reads_.begin(), reads_.end(), [](const Transfer& a, const Transfer& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.due < b.due;
    });
    std::vector<double> written_by(static_cast<size_t>(ticks_.count), 0),
        read_by(static_cast<size_t>(ticks_.count), 0);
    double now = 0, file = 0;
    size_t write = 0, read = 0;
    const auto wait = [&](double until) {
      if (until <= now) return;
      cost->stall_seconds += until - now;
      now = until;
    };
    for (int tick = 0; tick < ticks_.count; ++tick) {
      for (; read < reads_.size() && reads_[read].begin <= tick; ++read) {
        file = std::max(file, now) +
               static_cast<double>(reads_[read].bytes) / problem_.read_bytes_per_second;
        double& due = read_by[static_cast<size_t>(reads_[read].due)];
        due = std::max(due, file);
      }
      wait(read_by[static_cast<size_t>(tick)]);
      now += SecondsOf(tick, layer_at);
      for (; write < writes_.size() && writes_[write].begin <= tick; ++write) {
        file = std::max(file, now) +
               static_cast<double>(writes_[write].bytes) / problem_.written_bytes_per_second;
        double& due = written_by[static_cast<size_t>(writes_[write].due)];
        due = std::max(due, file);
      }
      wait(written_by[static_cast<size_t>(tick)]);
    }
    cost->seconds =
        now + static_cast<double>(cost->spilled_bytes) * problem_.round_trip_seconds_per_byte;
  }

  const ActivationProblem& problem_;
  const ActivationPlan& plan_;
  const Ticks ticks_;
  std::vector<int64_t> change_;
  std::vector<Transfer> writes_, reads_;
};

}  // namespace

ActivationCost CostOf(const ActivationProblem& problem, const ActivationPlan& plan,
                      std::vector<int64_t>* alive) {
  return Timeline(problem, plan).Cost(alive);
}

}  // namespace tidepool::nn
