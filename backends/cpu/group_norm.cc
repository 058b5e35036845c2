// Normalisation of groups of channels of f32 arrays: each item is an array [rows, channels] as batch normalisation takes it,
// of groups of several channels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "tidepool/backends/cpu/gemm/parallel_tasks.h"
#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/normalization_columns.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// Parts beside each other, each of items one after the other. They are cut by the shape alone, as sums are added part by part; scratch of
// normalisation is of a thread.
constexpr int64_t kMostParts = 32;
// Of many rows a part has so much more than its items that few parts are enough: what they took together, when each had
// scratch of its own, where the array is smaller. It decides the bits.
constexpr size_t kCutFloor = size_t{1} << 20;

constexpr size_t UpToALine(size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Items {
  int64_t items, channels, groups, width, elements;  // channels of a group, elements of an item
  int64_t parts = 0, items_of_part = 0;
  // Before they are rounded to parts of as many items: never fewer for more items, as memory for a batch should be.
  int64_t most_parts = 0;

  Items(const KernelCall& call, int64_t its_groups) : groups(its_groups) {
    const TensorRef& x = call.inputs[0];
    items = x.dims[0];
    channels = x.dims[x.rank - 1];
    width = channels / groups;
    elements = items == 0 ? 0 : x.NumElements() / items;
    if (elements == 0) return;
    const size_t cut_bytes =
        SumsBytes() + UpToALine(ColumnScratch::Bytes(Columns(elements, channels, kMostCopies)));
    const size_t most =
        std::max(kCutFloor, static_cast<size_t>(x.NumElements()) * sizeof(float)) / cut_bytes;
    most_parts = std::clamp(static_cast<int64_t>(most), int64_t{1}, std::min(kMostParts, items));
    items_of_part = (items + most_parts - 1) / most_parts;
    parts = (items + items_of_part - 1) / items_of_part;
  }
  int64_t Work() const { return 8 * items * elements; }
  // Two sums a channel of a part's items.
  size_t SumsBytes() const { return static_cast<size_t>(2 * channels) * sizeof(double); }
  // What normalisation takes of an item, of each thread that has parts.
  size_t SlotBytes() const { return UpToALine(ColumnScratch::Bytes(Columns(elements, channels))); }
  size_t SlotsBytes(const KernelCall& call) const {
    const int64_t slots =
        Work() < kMinParallelWork ? 1 : std::min<int64_t>(call.threads.count, most_parts);
    return SlotBytes() * static_cast<size_t>(slots);
  }
  double* SumsOf(const KernelCall& call, int64_t part) const {
    return reinterpret_cast<double*>(static_cast<char*>(call.scratch) + SlotsBytes(call) +
                                     static_cast<size_t>(part) * SumsBytes());
  }
};

Items OfForward(const KernelCall& call) { return {call, call.attrs<GroupNormAttributes>().groups}; }
Items OfGrad(const KernelCall& call) { return {call, call.inputs[2].dims[1]}; }

template <Items (*kItems)(const KernelCall&)>
size_t ScratchBytes(const KernelCall& call) {
  const Items g = kItems(call);
  if (g.parts == 0) return 0;
  return g.SlotsBytes(call) + g.SumsBytes() * static_cast<size_t>(g.most_parts);
}

// body(item, its place in the array, columns, scratch of normalisation, the sums of the item's part)
template <typename Body>
void ForEachItem(const KernelCall& call, const Items& g, Body body) {
  const Columns c(g.elements, g.channels);
  const std::shared_ptr<ThreadPool> pool =
      g.Work() < kMinParallelWork || g.parts < 2 ? nullptr : PoolOf(call.threads);
  ParallelTasks(pool.get(), g.parts, [&](int64_t part, int slot) {
    double* const sums = g.SumsOf(call, part);
    std::fill_n(sums, 2 * g.channels, 0.0);
    const ColumnScratch scratch(
        c, static_cast<char*>(call.scratch) + static_cast<size_t>(slot) * g.SlotBytes());
    const int64_t last = std::min(g.items, (part + 1) * g.items_of_part);
    for (int64_t item = part * g.items_of_part; item < last; ++item) {
      body(item, item * g.elements, c, scratch, sums);
    }
  });
}

void RunGroupNorm(const KernelCall& call) {
  const Items g = OfForward(call);
  float* const means = call.outputs[1].as<float>();
  float* const inverses = call.outputs[2].as<float>();
  if (g.elements == 0) {
    std::fill_n(means, g.items * g.groups, NAN);
    std::fill_n(inverses, g.items * g.groups, NAN);
    return;
  }
  ForEachItem(
      call, g,
      [&](int64_t item, int64_t at, const Columns& c, const ColumnScratch& scratch, double*) {
        NormalizeGroups(call, c, g.width, scratch, call.inputs[0].as<float>() + at,
                        call.inputs[1].as<float>(), call.inputs[2].as<float>(),
                        call.attrs<GroupNormAttributes>().epsilon, call.outputs[0].as<float>() + at,
                        {means + item * g.groups, inverses + item * g.groups});
      });
}

void RunGroupNormGrad(const KernelCall& call) {
  const Items g = OfGrad(call);
  std::fill_n(call.outputs[1].as<float>(), g.channels, 0.0f);
  std::fill_n(call.outputs[2].as<float>(), g.channels, 0.0f);
  if (g.elements == 0) return;
  ForEachItem(call, g,
              [&](int64_t item, int64_t at, const Columns& c, const ColumnScratch& scratch,
                  double* of_part) {
                NormalizeGroupsGrad(call, c, g.width, scratch, call.inputs[0].as<float>() + at,
                                    call.inputs[1].as<float>(),
                                    {call.inputs[2].as<float>() + item * g.groups,
                                     call.inputs[3].as<float>() + item * g.groups},
                                    call.inputs[4].as<float>() + at,
                                    call.outputs[0].as<float>() + at);
                for (int64_t i = 0; i < 2 * g.channels; ++i) of_part[i] += scratch.totals[i];
              });
  for (int64_t i = 0; i < g.channels; ++i) {
    double dscale = 0, dshift = 0;
    for (int64_t part = 0; part < g.parts; ++part) {
      dshift += g.SumsOf(call, part)[2 * i];
      dscale += g.SumsOf(call, part)[2 * i + 1];
    }
    call.outputs[1].as<float>()[i] = static_cast<float>(dscale);
    call.outputs[2].as<float>()[i] = static_cast<float>(dshift);
  }
}

const NetworkKernels registrar({
    {OpCode::kGroupNorm, &RunGroupNorm, &ScratchBytes<&OfForward>},
    {OpCode::kGroupNormGrad, &RunGroupNormGrad, &ScratchBytes<&OfGrad>},
});

}  // namespace
}  // namespace tidepool::cpu
