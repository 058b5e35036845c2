// The code of docs/managers.md: each part between two lines "// [name]" stands there.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/ownership_matchers.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

using namespace tidepool;
using ::testing::HasSubstr;

// [whose]
TEST(Managers, WhoseAResultIs) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDArray weights = model.Ones({3, 2});  // an explicit destination: the model's
  NDArray x = Ones({4, 3});              // no manager: its handles'
  NDArray y = MatMul(x, weights);        // the first operand that has a manager: the model's
  EXPECT_TRUE(model.Manages(y));
  {
    NDManager request = model.NewSubManager("request");
    ManagerScope scope(request);
    y = MatMul(x, weights);  // the manager entered last: the request's
    EXPECT_TRUE(request.Manages(y));
  }  // the request closes, and what is its
  EXPECT_TRUE(y.is_closed());
  EXPECT_EQ(model.arrays(), 1);  // the first y went when the handle was assigned
}
// [whose]

// [inference]
class Classifier {
 public:
  Classifier()
      : model_(NDManager::NewBaseManager(Host(), "model")),
        weights_(model_.RandomNormal({784, 10}, 0, 0.1, 42)),
        predictor_(model_.NewSubManager("predictor")),
        memory_("requests", WorkspaceConfig::Inference()) {
    model_.Cap();
    predictor_.Cap();
  }

  std::vector<float> Classify(const NDArray& image) {
    NDManager request = predictor_.NewCycleManager("request", memory_);
    ManagerScope scope(request);
    return Softmax(MatMul(image, weights_)).ToVector<float>();
  }
  const NDManager& model() const { return model_; }

 private:
  NDManager model_;
  NDArray weights_;
  NDManager predictor_;
  Workspace memory_;
};
// [inference]

// [grows_nothing]
TEST(Classifier, RequestsLeaveNothingInTheModel) {
  Classifier classifier;
  const NDArray image = Ones({1, 784});
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 100; ++i) classifier.Classify(image);
      },
      GrowsNothingIn(classifier.model().ref()));
}
// [grows_nothing]

TEST(Classifier, ARequestOfAKnownShapeAsksTheSystemForNothing) {
  Classifier classifier;
  const NDArray image = Ones({1, 784});
  for (int i = 0; i < 3; ++i) classifier.Classify(image);
  EXPECT_THAT([&] { classifier.Classify(image); }, AllocatesNothing());
}

// [outlive]
TEST(Managers, AnArrayThatOutlivesItsCycle) {
  NDManager caller = NDManager::NewBaseManager(Host(), "caller");
  Workspace memory("requests", WorkspaceConfig::Inference());
  NDArray kept;
  {
    NDManager request = caller.NewCycleManager("request", memory);
    ManagerScope scope(request);
    NDArray y = Ones({4}) * 2;
    kept = y.Detach();  // a copy on the heap, its handles'
    caller.Attach(kept);
  }
  EXPECT_TRUE(caller.Manages(kept));
  EXPECT_EQ(kept.At<float>({3}), 2);
}
// [outlive]

// [training]
TEST(Managers, ATrainingLoop) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDArray weights = model.Zeros({3, 1});
  NDManager trainer = model.NewSubManager("trainer");
  NDArray velocity = trainer.Zeros({3, 1});
  model.Cap();
  trainer.Cap();
  Workspace memory("steps", WorkspaceConfig::Training());
  for (uint64_t step = 0; step < 50; ++step) {
    NDManager batch = trainer.NewCycleManager("batch", memory);
    ManagerScope scope(batch);
    NDArray x = RandomNormal({16, 3}, 0, 1, step);
    NDArray error = MatMul(x, weights) - Sum(x, 1, /*keep_dims=*/true);
    NDArray gradient = MatMul(x.Transpose(), error);
    velocity *= 0.5;  // in place: whose it is does not change
    velocity += gradient;
    AddInto(weights, velocity * -0.02, weights);
  }  // batch closes: x, error, gradient and all in between are gone at once
  EXPECT_NEAR(weights.At<float>({0, 0}), 1, 0.05);
  EXPECT_EQ(model.arrays(), 1);
  EXPECT_EQ(trainer.arrays(), 1);
}
// [training]

// [moves]
TEST(Managers, MovingArrays) {
  NDManager session = NDManager::NewBaseManager(Host(), "session");
  NDManager turn = session.NewSubManager("turn");
  NDArray a = turn.Ones({4}), b = turn.Ones({4}), c = turn.Ones({4}), d = turn.Ones({4});
  NDArray result = turn.Ret(a);  // to the parent
  session.Attach(b);             // to whom you say
  c = turn.Detach(c);            // to its handles
  turn.Close();
  EXPECT_TRUE(session.Manages(result));
  EXPECT_TRUE(session.Manages(b));
  EXPECT_TRUE(c.IsInScope());  // until the last handle goes
  EXPECT_TRUE(d.is_closed());
}
// [moves]

// [lend]
TEST(Managers, Lending) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDManager work = NDManager::NewBaseManager(Host(), "work");
  NDArray weights = model.Ones({4});
  work.TempAttach(weights);
  NDArray twice = weights + weights;  // weights are with `work` now, so this is the work's
  EXPECT_TRUE(work.Manages(twice));
  work.Close();
  EXPECT_TRUE(model.Manages(weights));
  EXPECT_TRUE(twice.is_closed());
}
// [lend]

// [scoped]
NDArray StandardScores(NDManager& manager, const NDArray& x) {
  return manager.Scoped({x}, [&](NDManager&) {
    NDArray centred = x - Mean(x, 0, /*keep_dims=*/true);
    return centred / Sqrt(Variance(x, 0, 0, /*keep_dims=*/true));
  });
}
// [scoped]

TEST(Managers, ScopedLeavesTheResultAlone) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDArray x = model.RandomNormal({100, 3}, 5, 2, 1);
  NDArray z = StandardScores(model, x);
  EXPECT_EQ(model.arrays(), 2);
  EXPECT_TRUE(model.Manages(x) && model.Manages(z));
  EXPECT_NEAR(Mean(z).Item<float>(), 0, 1e-4);
}

// [cap]
TEST(Managers, ACapFindsTheLine) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDArray weights = model.Ones({2, 3});
  model.Cap();
  try {
    NDArray penalty = weights * weights;
    FAIL() << "this would have stayed in the model";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.message(),
        HasSubstr("Op [multiply]: a result of shape [2, 3] f32 would belong where argument X "
                  "does: owner [model] is capped"));
  }
}
// [cap]

// [budget]
TEST(Managers, ABudget) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  model.SetBudget(1 << 20);  // bytes, of all that is attached to it and below it
  NDManager request = model.NewSubManager("request");
  NDArray features = request.Zeros({1000, 200});
  try {
    request.Zeros({1000, 100});
    FAIL() << "beyond the budget";
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.message(),
                HasSubstr("400000 bytes for owner [model/request] exceed a budget: owner "
                          "[model] has 1 arrays of 800000 bytes below it, budget 1048576 bytes"));
    EXPECT_THAT(error.report(), HasSubstr("request  host, current; 1 array, 781.2 KiB"));
  }
}
// [budget]

// [symptom]
class Recommender {
 public:
  explicit Recommender(NDManager& manager) : manager_(manager), weights_(manager.Ones({8, 4})) {}

  float Score(const NDArray& x) {
    NDManager request = manager_.NewSubManager("request");
    NDArray y = MatMul(x, weights_);
    NDArray norm = Sum(weights_ * weights_);
    norms_.push_back(norm);
    return Sum(y).Item<float>();
  }

 private:
  NDManager& manager_;
  NDArray weights_;
  std::vector<NDArray> norms_;
};
// [symptom]

TEST(MemoryKeepsGrowing, Walk) {
  // [dump]
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  Recommender recommender(model);
  const NDArray x = Ones({1, 8});
  for (int i = 0; i < 1000; ++i) recommender.Score(x);
  std::ostringstream dump;
  model.DebugDump(dump);
  EXPECT_THAT(dump.str(), HasSubstr("model  host, current; 1001 arrays, 4128 B"));
  // [dump]

  // [diff]
  const OwnershipSnapshot before = model.Snapshot();
  for (int i = 0; i < 100; ++i) recommender.Score(x);
  EXPECT_EQ(ToString(Diff(before, model.Snapshot())),
            "model: managers 0, arrays +100, bytes +400, loans 0\n");
  // [diff]

  // [tracing]
  MemoryTracing::Enable();
  recommender.Score(x);
  MemoryTracing::Disable();
  std::ostringstream list;
  model.DebugDump(list, /*list_arrays=*/true);
  EXPECT_THAT(list.str(), HasSubstr("4 B, f32 [] made at "));
  // [tracing]

  // [find]
  ManagerCapScope cap(model);
  EXPECT_THAT([&] { recommender.Score(x); },
              testing::Throws<Error>(testing::Property(
                  &Error::message, HasSubstr("Op [matmul]: a result of shape [1, 4] f32"))));
  // [find]
}

// [mended]
class MendedRecommender {
 public:
  explicit MendedRecommender(NDManager& manager)
      : manager_(manager), weights_(manager.Ones({8, 4})) {
    manager_.Cap();
  }

  float Score(const NDArray& x) {
    NDManager request = manager_.NewSubManager("request");
    ManagerScope scope(request);
    norms_.push_back(Sum(weights_ * weights_).Item<float>());
    return Sum(MatMul(x, weights_)).Item<float>();
  }

 private:
  NDManager& manager_;
  NDArray weights_;
  std::vector<float> norms_;
};
// [mended]

// [closed]
TEST(Managers, UseAfterClose) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  NDManager request = model.NewSubManager("request");
  NDArray y = request.Ones({2});
  request.Close();
  try {
    y + y;
    FAIL() << "y was closed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.message()),
              "Op [add] X argument was closed before the call (shape [2]): by owner "
              "[model/request]");
  }
}
// [closed]

TEST(MemoryKeepsGrowing, Mended) {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  MendedRecommender recommender(model);
  const NDArray x = Ones({1, 8});
  EXPECT_THAT(
      [&] {
        for (int i = 0; i < 100; ++i) recommender.Score(x);
      },
      GrowsNothingIn(model.ref()));
}
