// Normalisation of groups of channels of f32 arrays: each item is an array [rows, channels] as batch
// normalisation takes it, whose channels' sums are added up to those of groups. Items run beside each other.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/backends/cpu/normalization_columns.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"

namespace tidepool::cpu {
namespace {

struct Items {
  int64_t items, channels, groups, width, elements;  // channels of a group, elements of an item

  Items(const KernelCall& call, int64_t its_groups) : groups(its_groups) {
    const TensorRef& x = call.inputs[0];
    items = x.dims[0];
    channels = x.dims[x.rank - 1];
    width = channels / groups;
    elements = items == 0 ? 0 : x.NumElements() / items;
  }
  double GroupCount() const { return static_cast<double>(elements) / static_cast<double>(groups); }
  // Of an item: what batch normalisation takes, then two numbers a channel that are kept beyond it.
  size_t Bytes() const { return elements == 0 ? 0 : (ColumnScratch::Bytes(Columns(elements, channels)) + 63) / 64 * 64; }
  size_t KeptBytes() const { return static_cast<size_t>(2 * channels) * sizeof(double); }
};

Items OfForward(const KernelCall& call) { return {call, call.attrs<GroupNormAttributes>().groups}; }
Items OfGrad(const KernelCall& call) { return {call, call.inputs[2].dims[1]}; }

template <Items (*kItems)(const KernelCall&)>
size_t ScratchBytes(const KernelCall& call) {
  const Items g = kItems(call);
  return (g.Bytes() + g.KeptBytes()) * static_cast<size_t>(g.items);
}

template <typename Body>
void ForEachItem(const KernelCall& call, const Items& g, Body body) {
  ParallelFor(call.threads, g.items, 1, 8 * g.items * g.elements, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      char* const scratch = static_cast<char*>(call.scratch) + static_cast<size_t>(item) * (g.Bytes() + g.KeptBytes());
      body(item, scratch + g.KeptBytes(), reinterpret_cast<double*>(scratch));
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
  ForEachItem(call, g, [&](int64_t item, void* memory, double* kept) {
    const Columns c(g.elements, g.channels);
    const ColumnScratch scratch(c, memory);
    const float* x = call.inputs[0].as<float>() + item * g.elements;
    float* z = call.outputs[0].as<float>() + item * g.elements;
    float *center = scratch.tiles[0], *factor = scratch.tiles[1], *offset = scratch.tiles[2];
    // Near the mean; the second pass finds how near.
    SumColumns(
        call, c, scratch,
        [&](int64_t begin, int64_t n, double* sums, double*) { loops.column_sums(x + begin, n, c.wide, sums); },
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
        [&](int64_t i, double sum, double squares) { kept[2 * i] = sum, kept[2 * i + 1] = squares; });
    for (int64_t group = 0; group < g.groups; ++group) {
      double sum = 0, squares = 0;
      for (int64_t i = group * g.width; i < (group + 1) * g.width; ++i) sum += kept[2 * i], squares += kept[2 * i + 1];
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
  ForEachItem(call, g, [&](int64_t item, void* memory, double* kept) {
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
      loops.column_grad(x + begin, center, dz + begin, factor, offset, slope, n, c.wide, dx + begin);
    });
  });
  const size_t step = (g.Bytes() + g.KeptBytes()) / sizeof(double);
  const double* const kept = static_cast<const double*>(call.scratch);
  for (int64_t i = 0; i < g.channels; ++i) {
    double dscale = 0, dshift = 0;
    for (int64_t item = 0; item < g.items; ++item) {
      dshift += kept[static_cast<size_t>(item) * step + static_cast<size_t>(2 * i)];
      dscale += kept[static_cast<size_t>(item) * step + static_cast<size_t>(2 * i + 1)];
    }
    call.outputs[1].as<float>()[i] = static_cast<float>(dscale);
    call.outputs[2].as<float>()[i] = static_cast<float>(dshift);
  }
}

const NetworkKernels registrar({
    {OpCode::kGroupNorm, &RunGroupNorm, &ScratchBytes<&OfForward>},
    {OpCode::kGroupNormGrad, &RunGroupNormGrad,
     &ScratchBytes<&OfGrad>},
});

}  // namespace
}  // namespace tidepool::cpu
