// Normalisation of groups of channels of f32 arrays: each item is an array [rows, channels] as
// batch normalisation takes it, whose channels' sums are added up to those of groups.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
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
  double GroupCount() const { return static_cast<double>(elements) / static_cast<double>(groups); }
  // Of a part: two numbers a channel of an item, two of all its items, and what batch normalisation
  // takes of an item.
  size_t PartBytes() const {
    return KeptBytes() + (ColumnScratch::Bytes(Columns(elements, channels)) + 63) / 64 * 64;
  }
  size_t KeptBytes() const { return static_cast<size_t>(4 * channels) * sizeof(double); }
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

// body(item, scratch of batch normalisation, two numbers a channel, the sums of the item's part)
template <typename Body>
void ForEachItem(const KernelCall& call, const Items& g, Body body) {
  ParallelFor(call.threads, g.parts, 1, 8 * g.items * g.elements, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      double* const sums = g.SumsOf(call, part);
      std::fill_n(sums, 2 * g.channels, 0.0);
      const int64_t last = std::min(g.items, (part + 1) * g.items_of_part);
      for (int64_t item = part * g.items_of_part; item < last; ++item) {
        body(item, sums + 4 * g.channels, sums + 2 * g.channels, sums);
      }
    }
  });
}

void RunGroupNorm(const KernelCall& call) {
  const Items g = OfForward(call);
  const float* scale = call.inputs[1].as<float>();
  const float* shift = call.inputs[2].as<float>();
  const double epsilon = call.attrs<GroupNormAttributes>().epsilon, count = g.GroupCount();
  const NnLoops& loops = NetworkLoops();
  float* const means = call.outputs[1].as<float>();
  float* const inverses = call.outputs[2].as<float>();
  if (g.elements == 0) {
    std::fill_n(means, g.items * g.groups, NAN);
    std::fill_n(inverses, g.items * g.groups, NAN);
    return;
  }
  ForEachItem(call, g, [&](int64_t item, void* memory, double* kept, double*) {
    const Columns c(g.elements, g.channels);
    const ColumnScratch scratch(c, memory);
    const float* x = call.inputs[0].as<float>() + item * g.elements;
    float* z = call.outputs[0].as<float>() + item * g.elements;
    float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2];
    // Near the mean; the second pass finds how near.
    SumColumns(
        call, c, scratch,
        [&](int64_t begin, int64_t n, double* sums, double*) {
          loops.column_sums(x + begin, n, c.wide, sums);
        },
        [&](int64_t i, double sum, double) { kept[i] = sum; });
    for (int64_t group = 0; group < g.groups; ++group) {
      double sum = 0;
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i) sum += kept[i];
      std::fill_n(center + group * g.width, g.width, static_cast<float>(sum / count));
    }
    Spread(c, center);
    SumColumns(
        call, c, scratch,
        [&](int64_t begin, int64_t n, double* sums, double* squares) {
          loops.column_moments(x + begin, center, n, c.wide, sums, squares);
        },
        [&](int64_t i, double sum, double squares) {
          kept[2 * i] = sum, kept[2 * i + 1] = squares;
        });
    for (int64_t group = 0; group < g.groups; ++group) {
      double sum = 0, squares = 0;
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i)
        sum += kept[2 * i], squares += kept[2 * i + 1];
      const double rest = sum / count, spread = squares / count - rest * rest;
      const double inverse = 1 / std::sqrt((spread < 0 ? 0 : spread) + epsilon);
      means[item * g.groups + group] = static_cast<float>(center[group * g.width] + rest);
      inverses[item * g.groups + group] = static_cast<float>(inverse);
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i) {
        factor[i] = static_cast<float>(inverse * scale[i]);
        offset[i] = static_cast<float>(shift[i] - rest * inverse * scale[i]);
      }
    }
    Spread(c, factor);
    Spread(c, offset);
    ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t n) {
      loops.column_affine(x + begin, center, factor, offset, n, c.wide, z + begin);
    });
  });
}

void RunGroupNormGrad(const KernelCall& call) {
  const Items g = OfGrad(call);
  const float* scale = call.inputs[1].as<float>();
  const NnLoops& loops = NetworkLoops();
  const double count = g.GroupCount();
  std::fill_n(call.outputs[1].as<float>(), g.channels, 0.0f);
  std::fill_n(call.outputs[2].as<float>(), g.channels, 0.0f);
  if (g.elements == 0) return;
  ForEachItem(call, g, [&](int64_t item, void* memory, double* kept, double* of_part) {
    const Columns c(g.elements, g.channels);
    const ColumnScratch scratch(c, memory);
    const float* x = call.inputs[0].as<float>() + item * g.elements;
    const float* dz = call.inputs[4].as<float>() + item * g.elements;
    float* dx = call.outputs[0].as<float>() + item * g.elements;
    const float* means = call.inputs[2].as<float>() + item * g.groups;
    const float* inverses = call.inputs[3].as<float>() + item * g.groups;
    float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2],
          *slope = scratch.tiles[3];
    for (int64_t i = 0; i < g.channels; ++i) center[i] = means[i / g.width];
    Spread(c, center);
    SumColumns(
        call, c, scratch,
        [&](int64_t begin, int64_t n, double* sums, double* products) {
          loops.column_products(x + begin, center, dz + begin, n, c.wide, sums, products);
        },
        [&](int64_t i, double sum, double products) {
          kept[2 * i] = sum;
          kept[2 * i + 1] = products * inverses[i / g.width];
          of_part[2 * i] += kept[2 * i];
          of_part[2 * i + 1] += kept[2 * i + 1];
        });
    for (int64_t group = 0; group < g.groups; ++group) {
      const double inverse = inverses[group];
      double sum = 0, products = 0;
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i) {
        sum += kept[2 * i] * scale[i];
        products += kept[2 * i + 1] * scale[i];
      }
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i) {
        factor[i] = static_cast<float>(inverse * scale[i]);
        offset[i] = static_cast<float>(inverse * sum / count);
        slope[i] = static_cast<float>(inverse * inverse * products / count);
      }
    }
    for (float* tile : {factor, offset, slope}) Spread(c, tile);
    ForEachPiece(call, c, [&](int64_t, int64_t begin, int64_t n) {
      loops.column_grad(x + begin, center, dz + begin, factor, offset, slope, n, c.wide,
                        dx + begin);
    });
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
