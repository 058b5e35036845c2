// Copies between views whose axes lie in another order, on devices and emulated.
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

constexpr unsigned char kUntouched = 0xA5;

// One operand: its strides, and where its first element is.
struct Layout {
  std::vector<int64_t> strides;
  int64_t first = 0;

  // Of dense memory whose axes lie in that order, the slowest first, with `gap` elements behind each row
  // of the fastest.
  static Layout Ordered(const std::vector<int64_t>& dims, const std::vector<int>& order,
                        int64_t first = 0, int64_t gap = 0) {
    Layout layout{std::vector<int64_t>(dims.size()), first};
    int64_t stride = 1;
    for (int i = static_cast<int>(order.size()) - 1; i >= 0; --i) {
      layout.strides[order[i]] = stride;
      stride *= dims[order[i]];
      if (i == static_cast<int>(order.size()) - 1) stride += gap;
    }
    return layout;
  }
};

class Copies : public CudaKernelTest {
 protected:
  void Check(DType dtype, const std::vector<int64_t>& dims, const Layout& from, const Layout& to) {
    const auto width = static_cast<int64_t>(DTypeBytes(dtype));
    std::vector<unsigned char> x(Extent(dims, from) * width),
        z(Extent(dims, to) * width, kUntouched);
    std::mt19937_64 random(dims[0]);
    for (unsigned char& byte : x) byte = static_cast<unsigned char>(random() & 0x3f);  // no NaN
    std::vector<unsigned char> expected = z;
    const int64_t count =
        std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, read = from.first, written = to.first;
      for (int axis = static_cast<int>(dims.size()) - 1; axis >= 0; --axis) {
        read += rest % dims[axis] * from.strides[axis];
        written += rest % dims[axis] * to.strides[axis];
        rest /= dims[axis];
      }
      std::memcpy(&expected[written * width], &x[read * width], width);
    }
    void *x_there = nullptr, *z_there = nullptr;
    ASSERT_EQ(cudaMalloc(&x_there, x.size()), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&z_there, z.size()), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(x_there, x.data(), x.size(), cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(z_there, z.data(), z.size(), cudaMemcpyHostToDevice), cudaSuccess);
    auto ref = [&](void* data, const Layout& layout) {
      TensorRef operand;
      operand.data = static_cast<unsigned char*>(data) + layout.first * width;
      operand.dtype = dtype;
      operand.present = true;
      operand.dense = false;
      operand.rank = static_cast<int>(dims.size());
      operand.dims = dims.data();
      operand.strides = layout.strides.data();
      return operand;
    };
    const TensorRef in[] = {ref(x_there, from)}, out[] = {ref(z_there, to)};
    KernelRegistry::Find(OpCode::kCopy, DeviceType::kCuda, dtype)[0].run(
        KernelCall{OpCode::kCopy, in, out});
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(z.data(), z_there, z.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(cudaFree(x_there), cudaSuccess);
    EXPECT_EQ(cudaFree(z_there), cudaSuccess);
    EXPECT_TRUE(z == expected) << DTypeName(dtype) << " of " << testing::PrintToString(dims)
                               << " from strides " << testing::PrintToString(from.strides) << " to "
                               << testing::PrintToString(to.strides);
  }

 private:
  static int64_t Extent(const std::vector<int64_t>& dims, const Layout& layout) {
    int64_t last = layout.first;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (layout.strides[i] > 0) last += (dims[i] - 1) * layout.strides[i];
    }
    return last + 1;
  }
};

constexpr DType kOfEachWidth[] = {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64};

TEST_F(Copies, MatricesAreTransposed) {
  for (const DType dtype : kOfEachWidth) {
    for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{{64, 64},
                                                                              {128, 256},
                                                                              {65, 131},
                                                                              {1, 700},
                                                                              {3, 700},
                                                                              {700, 3},
                                                                              {700, 4},
                                                                              {2, 4099},
                                                                              {4099, 2},
                                                                              {24, 25}}) {
      Check(dtype, dims, Layout::Ordered(dims, {1, 0}), Layout::Ordered(dims, {0, 1}));
    }
  }
}

TEST_F(Copies, AxesLieInAnyOrder) {
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const DType dtype : kOfEachWidth) {
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{5, 36, 72}, {40, 3, 37}}) {
      for (const auto& order : orders) {
        Check(dtype, dims, Layout::Ordered(dims, order), Layout::Ordered(dims, {0, 1, 2}));
        Check(dtype, dims, Layout::Ordered(dims, {0, 1, 2}), Layout::Ordered(dims, order, 1, 3));
      }
    }
  }
}

// The fastest axis is that of both: moved in pieces, as wide as its length and the addresses allow.
TEST_F(Copies, RowsStayTogether) {
  for (const DType dtype : kOfEachWidth) {
    for (const int64_t run : {1, 2, 3, 4, 6, 16, 32}) {
      const std::vector<int64_t> dims = {3, 25, 26, run};
      for (const int64_t first : {0, 1, 2}) {
        Check(dtype, dims, Layout::Ordered(dims, {0, 2, 1, 3}, first),
              Layout::Ordered(dims, {0, 1, 2, 3}, 2 * first));
        Check(dtype, dims, Layout::Ordered(dims, {0, 1, 2, 3}, first, 2),
              Layout::Ordered(dims, {2, 0, 1, 3}));
      }
    }
  }
}

// Words of several elements would be read at odd addresses, or past the end.
TEST_F(Copies, NarrowElementsAtOddPlaces) {
  for (const DType dtype : {DType::kInt8, DType::kFloat16}) {
    const std::vector<int64_t> dims = {32, 64};
    for (const int64_t gap : {1, 2, 4}) {
      for (const int64_t first : {0, 1, 2, 4}) {
        Check(dtype, dims, Layout::Ordered(dims, {1, 0}, first, gap),
              Layout::Ordered(dims, {0, 1}));
        Check(dtype, dims, Layout::Ordered(dims, {1, 0}),
              Layout::Ordered(dims, {0, 1}, first, gap));
      }
    }
  }
}

TEST_F(Copies, RepeatedAndReversedAxes) {
  const std::vector<int64_t> dims = {6, 40, 50};
  const Layout to = Layout::Ordered(dims, {0, 1, 2});
  for (const DType dtype : kOfEachWidth) {
    Check(dtype, dims, {{0, 1, 40}}, to);
    Check(dtype, dims, {{40, 1, 0}}, to);
    Check(dtype, dims, {{1, 0, 6}}, to);
    Check(dtype, dims, {{0, 0, 0}}, to);
    Check(dtype, dims, {{2000, -1, 40}, 39}, to);
    Check(dtype, dims, {{2000, 1, -40}, 1960}, to);
    Check(dtype, dims, {{4000, 2, 80}, 3}, to);
    const std::vector<int64_t> even = {4, 32, 64};
    Check(dtype, even, {{8192, 4, 128}}, Layout::Ordered(even, {0, 1, 2}));
    Check(dtype, even, Layout::Ordered(even, {0, 2, 1}), {{8192, 256, 4}});
  }
}

}  // namespace
}  // namespace tidepool::cuda
