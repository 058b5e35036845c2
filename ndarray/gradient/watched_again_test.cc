// A tape that is used from step to step meets the arrays of the step before, and checks no more of them than that they are those.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::function<void()>& call) {
  return std::string(CatchStatus(call).message());
}

class WatchedAgain : public testing::Test {
 protected:
  // The gradients of the sum of the squares of what is watched.
  void Step(const std::vector<NDArray>& arrays, const std::vector<NDArray>& gradients,
            GradientWrite write = GradientWrite::kReplace) {
    tape_.Restart();
    for (size_t i = 0; i < arrays.size(); ++i) {
      gradients[i].is_defined() ? tape_.Watch(arrays[i], gradients[i], write)
                                : tape_.Watch(arrays[i]);
    }
    NDArray sum = Zeros({});
    for (const NDArray& x : arrays) sum = sum + Sum(x * x);
    tape_.Backward(sum);
  }
  const NDArray flat_ = Arange(1, 7), to_ = Zeros({6});
  const NDArray a_ = flat_.Slice(0, 0, 2), b_ = flat_.Slice(0, 2, 6);
  NDArray da_ = to_.Slice(0, 0, 2), db_ = to_.Slice(0, 2, 6);
  GradientTape tape_;
};

TEST_F(WatchedAgain, HaveTheirGradientsInEachStep) {
  for (int step = 0; step < 3; ++step) {
    Step({a_, b_}, {da_, db_});
    EXPECT_THAT(to_.ToVector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
    EXPECT_EQ(tape_.Gradient(a_).raw_data(), da_.raw_data());
    NDArray x = flat_;
    x += 1;
    x -= 1;
  }
  // In another order, another number, with other gradients, added to, into no array of the caller's, and as before.
  Step({b_, a_}, {db_, da_});
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
  Step({b_}, {db_});
  EXPECT_THAT(Refusal([&] { tape_.Gradient(a_); }), HasSubstr("is not watched"));
  const NDArray other = Zeros({2});
  Step({a_, b_}, {other, db_});
  EXPECT_THAT(other.ToVector<float>(), ElementsAre(2, 4));
  Step({a_, b_}, {da_, db_}, GradientWrite::kAdd);
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(4, 8, 12, 16, 20, 24));
  Step({a_, b_}, {da_, db_}, GradientWrite::kAdd);
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(6, 12, 18, 24, 30, 36));
  Step({a_, b_}, {da_, db_});
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
  Step({a_, b_}, {da_, db_}, GradientWrite::kAdd);
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(4, 8, 12, 16, 20, 24));
  Step({a_, b_}, {NDArray(), NDArray()});
  EXPECT_THAT(tape_.Gradient(b_).ToVector<float>(), ElementsAre(6, 8, 10, 12));
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(4, 8, 12, 16, 20, 24));
  Step({a_, b_}, {da_, db_});
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST_F(WatchedAgain, AreRefusedForWhatIsNewOfThem) {
  const auto after_a_step = [&](const std::function<void()>& watch) {
    Step({a_, b_}, {da_, db_});
    tape_.Restart();
    return Refusal(watch);
  };
  const char* const overlaps = "overlaps that of another watched array";
  const char* const shares = "shares memory with that of another watched array";
  EXPECT_THAT(after_a_step([&] {
                tape_.Watch(a_, da_);
                tape_.Watch(flat_.Slice(0, 1, 5), db_);
              }),
              HasSubstr(overlaps));
  EXPECT_THAT(after_a_step([&] {
                tape_.Watch(a_, da_);
                tape_.Watch(b_, to_.Slice(0, 1, 5));
              }),
              HasSubstr(shares));
  EXPECT_THAT(after_a_step([&] {
                tape_.Watch(a_, da_);
                tape_.Watch(b_, b_);
              }),
              HasSubstr("over X itself"));
  EXPECT_THAT(after_a_step([&] {
                tape_.Watch(a_, da_);
                tape_.Watch(a_, db_.Slice(0, 0, 2));
              }),
              HasSubstr("watched with another gradient already"));
  EXPECT_THAT(after_a_step([&] {
                tape_.Watch(a_, da_);
                tape_.Watch(b_, NDArray({0}, DType::kFloat32));
              }),
              HasSubstr("the gradient is f32 [0]"));
  // A first one that is refused leaves nothing behind: what comes next is looked at.
  EXPECT_THAT(after_a_step([&] {
                Refusal([&] { tape_.Watch(a_, Zeros({3})); });
                tape_.Watch(b_, db_);
                tape_.Watch(flat_.Slice(0, 3, 4), da_.Slice(0, 0, 1));
              }),
              HasSubstr(overlaps));
  NDArray gone = Zeros({2});
  Step({a_, b_}, {gone, db_});
  gone.Close();
  tape_.Restart();
  EXPECT_THAT(Refusal([&] { tape_.Watch(a_, gone); }), HasSubstr("was closed before"));
}

// Gradients that a listener hears of may share memory; without one they may not, whatever came before.
TEST_F(WatchedAgain, SharedGradientsAreTheListenersAffair) {
  class Listener final : public GradientListener {
   public:
    void GradientIsFinal(int) override {}
    void PartIsNext(int) override {}
  } listener;
  tape_.set_listener(&listener);
  const NDArray shared = to_.Slice(0, 0, 2);
  const NDArray c = flat_.Slice(0, 4, 6);
  for (int step = 0; step < 2; ++step) Step({a_, c}, {shared, shared});
  tape_.set_listener(nullptr);
  for (int step = 0; step < 2; ++step) {
    EXPECT_THAT(Refusal([&] { Step({a_, c}, {shared, shared}); }), HasSubstr("shares memory"));
  }
  Step({a_, b_}, {da_, db_});
  EXPECT_THAT(to_.ToVector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
}

}  // namespace
}  // namespace tidepool
