#include "tidepool/memory/planning/network_traces.h"

#include <utility>

namespace tidepool {
namespace {

// Records requests; an id stands for an array.
class Recorder {
 public:
  using Array = size_t;

  Array New(int64_t floats) {
    const int64_t number = static_cast<int64_t>(requests_.size());
    requests_.push_back({number, kAlive, floats * 4});
    return requests_.size() - 1;
  }
  void Drop(Array array) { requests_[array].upper = static_cast<int64_t>(requests_.size()); }
  void Scratch(int64_t floats) { Drop(New(floats)); }
  int64_t floats(Array array) const { return requests_[array].size / 4; }

  std::vector<LifetimeBuffer> Finish() {
    for (LifetimeBuffer& request : requests_) {
      if (request.upper == kAlive) request.upper = static_cast<int64_t>(requests_.size());
    }
    return std::move(requests_);
  }

 private:
  static constexpr int64_t kAlive = -1;
  std::vector<LifetimeBuffer> requests_;
};

using Array = Recorder::Array;

struct Block {
  Array input, first, activation, second, shortcut, output;
  bool projects;
};

}  // namespace

std::vector<LifetimeBuffer> ResidualNetTrace(int64_t batch) {
  Recorder r;
  const Array images = r.New(batch * 32 * 32 * 3);
  r.Scratch(64 * 1024);
  Array x = r.New(batch * 32 * 32 * 64);
  std::vector<Block> blocks;
  int64_t side = 32;
  for (int64_t channels : {64, 128, 256, 512}) {
    for (int k = 0; k < 2; ++k) {
      Block b;
      b.projects = k == 0 && channels > 64;
      if (b.projects) side /= 2;
      const int64_t floats = batch * side * side * channels;
      const int64_t scratch = 9 * channels * 64;
      b.input = x;
      r.Scratch(scratch);
      b.first = r.New(floats);
      b.activation = r.New(floats);
      r.Scratch(scratch);
      b.second = r.New(floats);
      b.shortcut = b.projects ? r.New(floats) : x;
      b.output = r.New(floats);
      r.Drop(b.second);  // a sum's gradient does not need its terms
      if (b.projects) r.Drop(b.shortcut);
      x = b.output;
      blocks.push_back(b);
    }
  }
  const Array pooled = r.New(batch * 512);
  const Array logits = r.New(batch * 10);
  Array gradient = r.New(batch * 10);
  r.Drop(logits);
  const Array pooled_gradient = r.New(batch * 512);
  r.Drop(gradient);
  r.Drop(pooled);
  gradient = r.New(r.floats(x));
  r.Drop(pooled_gradient);
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    const int64_t floats = r.floats(b->output);
    const Array sum_gradient = r.New(floats);
    r.Drop(gradient);
    r.Drop(b->output);
    r.Scratch(9 * 64 * 512);
    const Array inner = r.New(floats);
    const Array first_gradient = r.New(floats);
    r.Drop(inner);
    r.Drop(b->activation);
    r.Scratch(9 * 64 * 512);
    gradient = r.New(r.floats(b->input));
    r.Drop(first_gradient);
    r.Drop(b->first);
    if (b->projects) r.Scratch(r.floats(b->input));
    r.Drop(sum_gradient);
  }
  r.Drop(gradient);
  r.Drop(blocks.front().input);
  r.Drop(images);
  return r.Finish();
}

std::vector<LifetimeBuffer> LstmTrace(int64_t batch, int64_t units, int64_t steps) {
  Recorder r;
  struct Step {
    Array gates, cell, squashed, hidden;
  };
  constexpr int kLayers = 2;
  const Array input = r.New(batch * steps * units);
  std::vector<Step> done[kLayers];
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int64_t t = 0; t < steps; ++t) {
      r.Scratch(batch * 4 * units);
      Step s;
      s.gates = r.New(batch * 4 * units);
      s.cell = r.New(batch * units);
      s.squashed = r.New(batch * units);
      s.hidden = r.New(batch * units);
      done[layer].push_back(s);
    }
  }
  std::vector<Array> from_above;
  for (int64_t t = 0; t < steps; ++t) from_above.push_back(r.New(batch * units));
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    std::vector<Array> to_below(steps);
    Array hidden_gradient = r.New(batch * units);
    Array cell_gradient = r.New(batch * units);
    for (int64_t t = steps - 1; t >= 0; --t) {
      const Step& s = done[layer][t];
      const Array total = r.New(batch * units);
      r.Drop(from_above[t]);
      r.Drop(hidden_gradient);
      const Array gates_gradient = r.New(batch * 4 * units);
      const Array cell_before = r.New(batch * units);
      r.Drop(cell_gradient);
      r.Drop(total);
      cell_gradient = cell_before;
      hidden_gradient = r.New(batch * units);
      if (layer > 0) to_below[t] = r.New(batch * units);
      r.Drop(gates_gradient);
      for (Array array : {s.gates, s.cell, s.squashed, s.hidden}) r.Drop(array);
    }
    r.Drop(hidden_gradient);
    r.Drop(cell_gradient);
    from_above = to_below;
  }
  r.Drop(input);
  return r.Finish();
}

}  // namespace tidepool
