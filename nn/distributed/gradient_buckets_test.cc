#include "tidepool/nn/distributed/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/parallel/parallel_testing.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

TEST(GradientBuckets, AreBegunInOrderOnceTheirGradientsAreFinal) {
  ThreadRanks(1).Run([](Communicator& communicator) {
    Network network = NetworkOf("lenet");  // eight parameters
    GradientBuckets buckets(network, communicator, 1);
    ASSERT_EQ(buckets.count(), 8);
    EXPECT_EQ(buckets.range(0).second, network.gradients().NumElements());
    EXPECT_EQ(buckets.range(7).first, 0);
    const auto begun = [&] {
      communicator.Barrier("test");
      return static_cast<int>(communicator.Progress().done);
    };
    int barriers = 0;
    const auto sums = [&] { return begun() - ++barriers; };
    buckets.Begin();
    buckets.GradientIsFinal(6);  // of the second bucket: the first is not complete
    EXPECT_EQ(sums(), 0);
    buckets.GradientIsFinal(7);
    EXPECT_EQ(sums(), 2);
    buckets.GradientIsFinal(5);
    EXPECT_EQ(sums(), 3);
    buckets.BeginRest();
    EXPECT_EQ(sums(), 8);
    buckets.Wait();
    EXPECT_THAT(buckets.completed(), testing::ElementsAre(1, 0, 2, 3, 4, 5, 6, 7));
    buckets.set_order(buckets.completed());
    buckets.Begin();
    buckets.GradientIsFinal(6);
    EXPECT_EQ(sums(), 9);
    buckets.BeginRest();
    buckets.Wait();
    EXPECT_THAT(ErrorOf([&] {
                  buckets.set_order({0, 0, 1, 2, 3, 4, 5, 6});
                }).message(),
                HasSubstr("expected one of each of 8"));
  });
}

TEST(GradientBuckets, TheFirstParametersOfALongBucketAreOneOfTheirOwn) {
  ThreadRanks(1).Run([](Communicator& communicator) {
    using Range = std::pair<int64_t, int64_t>;
    const Network lenet(NetworkConfig::Sequential({28, 28, 1}, LayersOf("lenet", 10)));
    const int64_t first = lenet.named_parameters()[2].begin, all = lenet.trained_elements();
    GradientBuckets one(lenet, communicator, int64_t{1} << 30);
    ASSERT_EQ(one.count(), 2);
    EXPECT_EQ(one.range(0), Range(first, all));
    EXPECT_EQ(one.range(1), Range(0, first));
    one.Begin();
    for (const int parameter : {7, 6, 5, 4, 3, 1}) one.GradientIsFinal(parameter);
    EXPECT_EQ(one.begun(), 0);
    one.GradientIsFinal(2);  // of all but the first layer
    EXPECT_EQ(one.begun(), 1);
    one.GradientIsFinal(0);
    EXPECT_EQ(one.begun(), 2);
    one.Wait();
    EXPECT_EQ(one.OwnRanges(), std::vector<Range>({{0, first}, {first, all}}));
    // Short ones, and those that begin with most of what they have, stay whole.
    const Network small(NetworkConfig::Sequential({4}, {Dense(3), Dense(900)}));
    EXPECT_EQ(GradientBuckets(small, communicator, int64_t{1} << 30).count(), 1);
    const Network wide(NetworkConfig::Sequential({900}, {Dense(100), Dense(3)}));
    EXPECT_EQ(GradientBuckets(wide, communicator, int64_t{1} << 30).count(), 1);
  });
}

// Between two layers: notes in the backward pass how many buckets have been begun by then.
struct Probed : Block {
  Probed(const GradientBuckets*& buckets, std::vector<size_t>& completed)
      : buckets(buckets), completed(completed) {}
  Part first{*this, "first", Dense(4, Activation::kTanh)};
  Part second{*this, "second", Dense(2)};
  NDArray Forward(const NDArray& x) const override {
    const NDArray h = first(x);
    NDArray copy;
    {
      const NoGradientScope constants;
      copy = h.Dup();
    }
    SetGradient("probe", {&h, 1}, {&copy, 1}, [this](absl::Span<const NDArray> dh) {
      completed.push_back(static_cast<size_t>(buckets->begun()));
      return std::vector<NDArray>{dh[0]};
    });
    return second(copy);
  }
  const GradientBuckets*& buckets;
  std::vector<size_t>& completed;
};

TEST(GradientBuckets, AreBegunWhileTheBackwardPassGoesOn) {
  ThreadRanks(1).Run([](Communicator& communicator) {
    const GradientBuckets* seen = nullptr;
    std::vector<size_t> begun;
    Network network({{"x", {3}}}, std::make_unique<Probed>(seen, begun));
    GradientBuckets buckets(network, communicator, 1);
    seen = &buckets;
    buckets.Begin();
    network.set_gradient_listener(&buckets);
    network.ComputeGradients(Ones({5, 3}), Zeros({5}, DType::kInt64));
    EXPECT_THAT(begun, testing::ElementsAre(2));  // the second layer's weight and bias
    EXPECT_EQ(buckets.begun(), 4);
    buckets.Wait();
    EXPECT_EQ(communicator.stats().collectives, 4);
  });
}

}  // namespace
}  // namespace tidepool::nn
