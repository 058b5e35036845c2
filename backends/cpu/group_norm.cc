// Normalisation of groups of channels of f32 arrays: each item is an array [rows, channels] as batch normalisation takes it,
// of groups of several channels.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/normalization_columns.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cpu {
namespace {

// Items beside each other, each part one after the other: scratch is of a part, however many items
// there are.
constexpr int64_t kMostParts = 32;
constexpr size_t kScratchFloor = size_t{1}
                                 << 20;  // what parts may take together where the array is smaller

struct Items {
  int64_t items, channels, groups, width, elements;  // channels of a group, elements of an item
  int64_t parts = 0, items_of_part = 0;

  Items(const KernelCall& call, int64_t its_groups) : groups(its_groups) {
    const TensorRef& x = call.inputs[0];
    items = x.dims[0];
    channels = x.dims[x.rank - 1];
    width = channels / groups;
    elements = items == 0 ? 0 : x.NumElements() / items;
    if (elements == 0) return;
    const size_t most =
        std::max(kScratchFloor, static_cast<size_t>(x.NumElements()) * sizeof(float)) / PartBytes();
    parts = std::clamp(static_cast<int64_t>(most), int64_t{1}, std::min(kMostParts, items));
    items_of_part = (items + parts - 1) / parts;
    parts = (items + items_of_part - 1) / items_of_part;
  }
  // Of a part: two sums a channel of its items, and what normalisation takes of an item.
  size_t PartBytes() const {
    return SumsBytes() + (ColumnScratch::Bytes(Columns(elements, channels)) + 63) / 64 * 64;
  }
  size_t SumsBytes() const { return static_cast<size_t>(2 * channels) * sizeof(double); }
  // The sums of a part's items.
  double* SumsOf(const KernelCall& call, int64_t part) const {
    return reinterpret_cast<double*>(static_cast<char*>(call.scratch) +
                                     static_cast<size_t>(part) * PartBytes());
  }
};

Items OfForward(const KernelCall& call) { return {call, call.attrs<GroupNormAttributes>().groups}; }
Items OfGrad(const KernelCall& call) { return {call, call.inputs[2].dims[1]}; }

template <Items (*kItems)(const KernelCall&)>
size_t ScratchBytes(const KernelCall& call) {
  const Items g = kItems(call);
  return g.parts == 0 ? 0 : g.PartBytes() * static_cast<size_t>(g.parts);
}

// body(item, its place in the array, columns, scratch of normalisation, the sums of the item's part)
template <typename Body>
void ForEachItem(const KernelCall& call, const Items& g, Body body) {
  const Columns c(g.elements, g.channels);
  ParallelFor(call.threads, g.parts, 1, 8 * g.items * g.elements, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      double* const sums = g.SumsOf(call, part);
      std::fill_n(sums, 2 * g.channels, 0.0);
      const ColumnScratch scratch(c, sums + 2 * g.channels);
      const int64_t last = std::min(g.items, (part + 1) * g.items_of_part);
      for (int64_t item = part * g.items_of_part; item < last; ++item) {
        body(item, item * g.elements, c, scratch, sums);
      }
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
