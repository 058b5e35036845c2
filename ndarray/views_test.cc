// Views against a plain model: which element of the base each element of the view is.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Values(const NDArray& x) { return x.ToVector<int64_t>(); }
NDArray Numbers(const Shape& shape) {
  return Arange(0, static_cast<double>(shape.NumElements()), 1, DType::kInt64).Reshape(shape);
}
std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

TEST(Views, Known) {
  const NDArray x = Numbers({2, 3, 4});
  EXPECT_EQ(x.Transpose({2, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(x.Transpose({-1, 0, 1}).At<int64_t>({3, 1, 2}), 23);
  EXPECT_THAT(Values(x.Index(0, 1).Slice(1, 3, -1, -2).Index(0, 0)), ElementsAre(15, 13));
  EXPECT_THAT(Values(x.Slice(2, 0, 4, 3).Index(1, 2).Index(0, 0)), ElementsAre(8, 11));
  EXPECT_THAT(Values(Numbers({3}).Slice(0, 2, -1, -1)), ElementsAre(2, 1, 0));
  // Steps beyond the axis, as large as they come.
  for (const int64_t step : {int64_t{4}, INT64_MAX - 2, INT64_MAX}) {
    EXPECT_THAT(Values(Numbers({4}).Slice(0, 0, 4, step)), ElementsAre(0));
    EXPECT_THAT(Values(Numbers({4}).Slice(0, 3, -1, -step)), ElementsAre(3));
  }
  EXPECT_THAT(Values(Numbers({4}).Slice(0, 3, -1, INT64_MIN)), ElementsAre(3));
  EXPECT_THAT(Values(Numbers({3}).BroadcastTo({2, 3})), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(Values(Numbers({2, 1}).BroadcastTo({2, 2})), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(Values(Full({}, 7, DType::kInt64).BroadcastTo({3})), ElementsAre(7, 7, 7));
  EXPECT_THAT(Values(Numbers({3, 4}).Diagonal()), ElementsAre(0, 5, 10));
  EXPECT_EQ(Numbers({1, 3, 1}).Squeeze().shape(), (Shape{3}));
  EXPECT_EQ(Numbers({1, 3, 1}).Squeeze(-1).shape(), (Shape{1, 3}));
  EXPECT_EQ(Numbers({3}).ExpandDims(-1).shape(), (Shape{3, 1}));
  EXPECT_EQ(Numbers({3}).ExpandDims(0).shape(), (Shape{1, 3}));
  EXPECT_EQ(Numbers({0, 3}).Slice(0, 0, 0, 2).shape(), (Shape{0, 3}));
  EXPECT_EQ(Numbers({0}).Slice(0, -1, -1, -1).shape(), (Shape{0}));
}

TEST(Views, ReshapeFindsTheSizeThatIsMissing) {
  const NDArray x = Numbers({2, 3, 4});
  EXPECT_EQ(x.Reshape({-1, 4}).shape(), (Shape{6, 4}));
  EXPECT_EQ(x.Reshape({2, -1, 2}).shape(), (Shape{2, 6, 2}));
  EXPECT_EQ(x.Reshape({-1}).raw_data(), x.raw_data());
  EXPECT_EQ(x.Reshape({24, -1}).shape(), (Shape{24, 1}));
  EXPECT_EQ(Numbers({0, 3}).Reshape({-1, 2}).shape(), (Shape{0, 2}));
  EXPECT_EQ(Numbers({1}).Index(0, 0).Reshape({-1}).shape(), (Shape{1}));
  EXPECT_EQ(Numbers({1}).Reshape({}).shape(), Shape());
  const std::vector<int64_t> dims = {3, -1};
  EXPECT_EQ(x.Reshape(dims).shape(), (Shape{3, 8}));
  const NDArray columns = x.Index(0, 0).Transpose();  // [4, 3], no view of which has rank 1
  EXPECT_THAT(MessageOf([&] { columns.Reshape({-1}); }), HasSubstr("cannot view shape [4, 3]"));
  EXPECT_THAT(Values(columns.ReshapeOrCopy({-1, 6}).Index(0, 0)), ElementsAre(0, 4, 8, 1, 5, 9));
  EXPECT_EQ(columns.ReshapeOrCopy(dims).shape(), (Shape{3, 4}));
  EXPECT_THAT(MessageOf([&] {
                x.Reshape({-1, 5});
              }),
              HasSubstr("Op [reshape]: no size for -1 makes [2, 3, 4] [-1, 5]"));
  EXPECT_THAT(MessageOf([&] { Numbers({0, 3}).Reshape({-1, 0}); }), HasSubstr("no size for -1"));
  EXPECT_THAT(
      MessageOf([&] {
        x.Reshape({-1, 2, -1});
      }),
      HasSubstr("Op [reshape]: found more than one -1 in [-1, 2, -1], expected at most one"));
  EXPECT_THAT(MessageOf([&] { x.Reshape({-2, -1}); }), HasSubstr("negative"));
  EXPECT_THAT(MessageOf([&] { x.Reshape({-2, 12}); }), HasSubstr("negative"));
  EXPECT_THAT(MessageOf([&] {
                x.Reshape({-1, INT64_MAX, INT64_MAX});
              }),
              HasSubstr("more than 2^59"));
  EXPECT_THAT(MessageOf([&] { x.Reshape({-1, 1, 1, 1, 1, 1, 1, 1, 1}); }), HasSubstr("rank"));
}

TEST(Views, FlattenAndSwapAxes) {
  const NDArray x = Numbers({2, 3});
  EXPECT_EQ(x.Flatten().shape(), (Shape{6}));
  EXPECT_EQ(x.Flatten().raw_data(), x.raw_data());  // a view where there is one
  EXPECT_THAT(Values(x.Transpose().Flatten()), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(Full({}, 7, DType::kInt64).Flatten().shape(), (Shape{1}));
  EXPECT_EQ(Numbers({3, 0}).Flatten().shape(), (Shape{0}));
  const NDArray y = Numbers({2, 3, 4});
  EXPECT_EQ(y.SwapAxes(0, -1).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(y.SwapAxes(0, -1).At<int64_t>({3, 1, 0}), (y.At<int64_t>({0, 1, 3})));
  EXPECT_EQ(y.SwapAxes(1, 1).shape(), y.shape());
  EXPECT_THAT(MessageOf([&] { y.SwapAxes(0, 3); }), HasSubstr("swap_axes"));
  EXPECT_THAT(MessageOf([&] { Full({}, 7).SwapAxes(0, 0); }), HasSubstr("swap_axes"));
}

TEST(Views, ReshapeNeedsNoCopyWhereStridesDo) {
  const NDArray x = Numbers({4, 6});
  // Every second row: rows can be split, not merged.
  const NDArray rows = x.Slice(0, 0, 4, 2);
  EXPECT_THAT(Values(rows.Reshape({2, 2, 3}).Index(0, 1)), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(MessageOf([&] { rows.Reshape({12}); }),
              HasSubstr("cannot view shape [2, 6] (with gaps) as [12]"));
  const NDArray copy = rows.ReshapeOrCopy({12});
  EXPECT_EQ(Values(copy), Values(rows));
  EXPECT_NE(copy.raw_data(), rows.raw_data());
  EXPECT_EQ(rows.ReshapeOrCopy({2, 3, 2}).raw_data(), rows.raw_data());
  EXPECT_THAT(MessageOf([&] { rows.ReshapeOrCopy({11}); }), HasSubstr("as [11]"));
  // Backwards is even, too.
  const NDArray back = Numbers({12}).Slice(0, 11, -1, -1);
  EXPECT_THAT(Values(back.Reshape({3, 4}).Index(0, 1)), ElementsAre(7, 6, 5, 4));
}

// Random chains of views beside a list of what each element should be.
TEST(Views, RandomChains) {
  std::mt19937_64 random(20261121);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int reshaped = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    NDArray view = Numbers({1 + below(4), 1 + below(5), 1 + below(6)});
    std::vector<int64_t> expected = Values(view);
    for (int step = 0; step < 4; ++step) {
      const Shape shape = view.shape();
      const std::vector<int64_t> before = expected;
      // new element number -> old element number, by index arithmetic of its own
      auto rebuild = [&](const Shape& to, const std::function<int64_t(std::vector<int64_t>)>& old) {
        expected.clear();
        for (int64_t n = 0; n < to.NumElements(); ++n) {
          std::vector<int64_t> index(to.rank());
          int64_t rest = n;
          for (int i = to.rank() - 1; i >= 0; --i) {
            index[i] = rest % to[i];
            rest /= to[i];
          }
          expected.push_back(before[old(index)]);
        }
      };
      auto number = [&](const std::vector<int64_t>& index) {
        int64_t n = 0;
        for (int i = 0; i < shape.rank(); ++i) n = n * shape[i] + index[i];
        return n;
      };
      const int axis = shape.rank() > 0 ? static_cast<int>(below(shape.rank())) : 0;
      const int64_t kind = below(shape.rank() > 0 ? 5 : 1);
      if (kind == 0) {  // reshape to two factors
        const int64_t count = shape.NumElements();
        int64_t factor = 1 + below(std::max<int64_t>(1, count));
        while (count > 0 && count % factor != 0) --factor;
        if (count == 0) continue;
        try {
          view = view.Reshape({factor, count / factor});
          ++reshaped;
        } catch (const Error&) {
          ++refused;
          const NDArray copy = view.ReshapeOrCopy({factor, count / factor});
          ASSERT_EQ(Values(copy), expected);
        }
      } else if (kind == 1) {
        std::vector<int> axes(shape.rank());
        for (int i = 0; i < shape.rank(); ++i) axes[i] = i;
        std::shuffle(axes.begin(), axes.end(), random);
        view = view.Transpose(axes);
        rebuild(view.shape(), [&](std::vector<int64_t> index) {
          std::vector<int64_t> old(index.size());
          for (size_t i = 0; i < index.size(); ++i) old[axes[i]] = index[i];
          return number(old);
        });
      } else if (kind == 2) {
        const int64_t stride = 1 + below(3), begin = below(shape[axis] + 1);
        const int64_t end = begin + below(shape[axis] - begin + 1);
        view = view.Slice(axis, begin, end, stride);
        rebuild(view.shape(), [&](std::vector<int64_t> index) {
          index[axis] = begin + index[axis] * stride;
          return number(index);
        });
      } else if (kind == 3 && shape[axis] > 0) {
        const int64_t stride = 1 + below(3), begin = below(shape[axis]);
        const int64_t end = begin - 1 - below(begin + 1);
        view = view.Slice(axis, begin, std::max<int64_t>(-1, end), -stride);
        rebuild(view.shape(), [&](std::vector<int64_t> index) {
          index[axis] = begin - index[axis] * stride;
          return number(index);
        });
      } else if (kind == 4 && shape[axis] > 0) {
        const int64_t at = below(shape[axis]);
        view = view.Index(axis, at);
        rebuild(view.shape(), [&](std::vector<int64_t> index) {
          index.insert(index.begin() + axis, at);
          return number(index);
        });
      }
      ASSERT_EQ(Values(view), expected) << "round " << round;
    }
  }
  EXPECT_GT(reshaped, 500);
  EXPECT_GT(refused, 100);
}

TEST(Views, OverlapOfViewsThatGoBackIsSeen) {
  const NDArray x = Numbers({10});
  EXPECT_TRUE(ViewsOverlap(x.Slice(0, 9, 4, -1), x.Slice(0, 7, 10)));
  EXPECT_FALSE(ViewsOverlap(x.Slice(0, 9, 4, -1), x.Slice(0, 0, 5)));
}

TEST(Views, WhatRepeatsItsElementsIsNotWrittenTo) {
  NDArray wide = Numbers({3}).BroadcastTo({2, 3});
  EXPECT_EQ(MessageOf([&] { wide *= 2; }),
            "Op [scale_shift]: output Z of shape [2, 3] repeats its elements along axis 0 "
            "(BroadcastTo); Dup() makes an array of its own");
  NDArray own = wide.Dup();
  own *= 2;
  EXPECT_THAT(Values(own), ElementsAre(0, 2, 4, 0, 2, 4));
}

TEST(Views, Errors) {
  const NDArray x = Numbers({2, 3});
  EXPECT_EQ(MessageOf([&] {
              x.Transpose({0, 0});
            }),
            "Op [transpose]: axes [0, 0] of shape [2, 3], expected each axis once");
  EXPECT_EQ(MessageOf([&] { x.Transpose({0}); }),
            "Op [transpose]: axes [0] of shape [2, 3], expected each axis once");
  EXPECT_THAT(MessageOf([&] { x.Slice(1, 0, 3, 0); }), HasSubstr("from 0 to 3 by 0 of axis 1"));
  EXPECT_THAT(MessageOf([&] { x.Slice(1, 3, -1, -1); }), HasSubstr("begin is below the size"));
  EXPECT_EQ(MessageOf([&] {
              x.BroadcastTo({3, 3});
            }),
            "Op [broadcast]: shape [2, 3] does not broadcast to [3, 3]");
  EXPECT_THAT(MessageOf([&] { x.BroadcastTo({3}); }), HasSubstr("does not broadcast"));
  EXPECT_EQ(MessageOf([&] { x.Squeeze(1); }),
            "Op [squeeze]: axis 1 of shape [2, 3] has size 3, expected 1");
  EXPECT_THAT(MessageOf([&] {
                Numbers({1, 1, 1, 1, 1, 1, 1, 1}).ExpandDims(0);
              }),
              HasSubstr("rank 8, which is the most"));
  EXPECT_THAT(MessageOf([&] { Numbers({3}).Diagonal(); }), HasSubstr("expected at least rank 2"));
}

// The stride of an axis with one element says nothing.
TEST(Views, PartsOfOneElementOnAnAxisAreToldApart) {
  const NDArray x = Arange(0, 6, 1, DType::kInt64).Reshape({2, 3});
  for (int64_t from = 0; from < 3; ++from) {
    for (int64_t to = 0; to < 3; ++to) {
      for (int64_t step = 1; step <= 3; ++step) {
        const NDArray a = x.Slice(1, from, from + 1), b = x.Slice(1, to, to + 1, step);
        EXPECT_EQ(ViewsOverlap(a, b), from == to) << from << " " << to << " " << step;
        EXPECT_EQ(ViewsOverlap(b, a), from == to);
      }
    }
  }
  EXPECT_TRUE(ViewsOverlap(x.Slice(0, 0, 1), x.Slice(1, 1, 2)));
  EXPECT_FALSE(ViewsOverlap(x.Slice(0, 0, 1).Slice(1, 0, 2), x.Slice(1, 2, 3)));
}

}  // namespace
}  // namespace tidepool
