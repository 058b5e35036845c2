// Index arithmetic of kernels against plain loops, called on the host through the emulation.
#include "tidepool/backends/cuda/framework/strided_layout.h"

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/framework/divider.h"

namespace tidepool::cuda {
namespace {

constexpr unsigned kSeed = 20240607;

TEST(FastDivisor, DividesEverythingBelowTwoToThe31) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 20000; ++round) {
    const uint32_t d = round < 300
                           ? static_cast<uint32_t>(round + 1)
                           : std::max(1u, static_cast<uint32_t>(random()) >> (1 + random() % 31));
    const FastDivisor divisor(d);
    for (uint32_t n : {0u, 1u, d - 1, d, d + 1, 0x7fffffffu, 0x7fffffffu - d, 0x7fffffffu / d * d,
                       static_cast<uint32_t>(random()) >> 1}) {
      if (n > 0x7fffffffu) continue;
      ASSERT_EQ(divisor.Divide(n), n / d) << n << " / " << d;
    }
  }
}

TEST(Divider, DividesWideNumbersToo) {
  for (int64_t d : {int64_t{1}, int64_t{7}, int64_t{1} << 31, (int64_t{1} << 35) + 3}) {
    for (int64_t most : {int64_t{1000}, int64_t{1} << 40}) {
      const Divider divider(d, most);
      for (int64_t n : {int64_t{0}, int64_t{999}, most}) {
        int64_t rest;
        ASSERT_EQ(divider.Divide(n, &rest), n / d);
        ASSERT_EQ(rest, n % d);
      }
    }
  }
}

struct Operand {
  std::vector<int64_t> dims, strides;
  TensorRef Ref() const {
    TensorRef ref;
    ref.rank = static_cast<int>(dims.size());
    ref.dims = dims.data();
    ref.strides = strides.data();
    return ref;
  }
};

// Offsets of all elements in row-major order, by plain loops.
void Walk(const Operand& shape, const Operand& of, size_t axis, int64_t offset,
          std::vector<int64_t>* out) {
  if (axis == shape.dims.size()) return out->push_back(offset);
  const size_t lead = shape.dims.size() - of.dims.size();
  const int64_t stride = axis < lead || of.dims[axis - lead] == 1 ? 0 : of.strides[axis - lead];
  for (int64_t i = 0; i < shape.dims[axis]; ++i)
    Walk(shape, of, axis + 1, offset + i * stride, out);
}

TEST(StridedPlan, GivesTheOffsetsOfPlainLoops) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    const int rank = static_cast<int>(random() % 6);
    Operand z, x, y;
    int64_t dense = 1;
    for (int i = 0; i < rank; ++i) {
      z.dims.push_back(1 + random() % 4);
      z.strides.push_back(0);
    }
    for (int i = rank - 1; i >= 0; --i) {
      z.strides[i] = dense;
      dense *= z.dims[i];
    }
    x = z;
    for (int64_t& stride : x.strides) {
      if (random() % 2 == 0) stride = static_cast<int64_t>(random() % 40) - 20;
    }
    // Fewer axes, some of size 1.
    for (int i = static_cast<int>(random() % (rank + 1)); i < rank; ++i) {
      y.dims.push_back(random() % 3 == 0 ? 1 : z.dims[i]);
      y.strides.push_back(z.strides[i]);
    }
    const TensorRef refs[3] = {z.Ref(), x.Ref(), y.Ref()};
    const TensorRef* const pointers[3] = {&refs[0], &refs[1], &refs[2]};
    const StridedPlan plan(refs[0], pointers);
    EXPECT_EQ(plan.count, dense);
    std::vector<int64_t> expected[3];
    Walk(z, z, 0, 0, &expected[0]);
    Walk(z, x, 0, 0, &expected[1]);
    Walk(z, y, 0, 0, &expected[2]);
    int pieces = 0;
    ForEachPiece(plan, [&](const StridedLayout& layout, const int64_t* first) {
      ++pieces;
      ASSERT_EQ(layout.count, dense);
      for (uint32_t n = 0; n < layout.count; ++n) {
        int32_t offsets[3];
        layout.Offsets(n, offsets);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(first[i] + offsets[i], expected[i][n]);
      }
    });
    EXPECT_EQ(pieces, 1);
  }
}

TEST(StridedPlan, MergesAxesAndSeesFlatCalls) {
  const Operand dense{{2, 3, 4}, {12, 4, 1}}, row{{4}, {1}}, number{{1}, {1}},
      turned{{2, 3, 4}, {1, 2, 6}};
  auto plan = [&](const Operand& x) {
    const TensorRef refs[2] = {dense.Ref(), x.Ref()};
    const TensorRef* const pointers[2] = {&refs[0], &refs[1]};
    return StridedPlan(refs[0], pointers);
  };
  EXPECT_TRUE(plan(dense).IsFlat());
  EXPECT_EQ(plan(dense).rank, 1);
  EXPECT_FALSE(plan(dense).IsScalar(1));
  EXPECT_TRUE(plan(number).IsFlat());
  EXPECT_TRUE(plan(number).IsScalar(1));
  EXPECT_FALSE(plan(row).IsFlat());
  EXPECT_EQ(plan(row).rank, 2);
  EXPECT_FALSE(plan(turned).IsFlat());
  EXPECT_EQ(plan(turned).rank, 3);
}

// Nothing of these sizes is allocated: only the arithmetic runs.
TEST(StridedPlan, CutsWhatDoesNotFit) {
  const int64_t many = (int64_t{1} << 33) + 12345;
  const Operand z{{3, many}, {many, 1}}, x{{3, many}, {1, 5}};
  const TensorRef refs[2] = {z.Ref(), x.Ref()};
  const TensorRef* const pointers[2] = {&refs[0], &refs[1]};
  const StridedPlan plan(refs[0], pointers);
  int64_t total = 0;
  std::set<int64_t> begins;
  ForEachPiece(plan, [&](const StridedLayout& layout, const int64_t* first) {
    total += layout.count;
    EXPECT_TRUE(begins.insert(first[0]).second);
    int32_t offsets[2];
    layout.Offsets(layout.count - 1, offsets);
    // The last element of the piece, by its place in Z.
    const int64_t place = first[0] + offsets[0];
    EXPECT_EQ(first[1] + offsets[1], place / many + place % many * 5);
  });
  EXPECT_EQ(total, 3 * many);
  EXPECT_GT(begins.size(), 12u);
}

}  // namespace
}  // namespace tidepool::cuda
