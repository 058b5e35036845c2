// What the numbered behaviour (conformance/) leaves out: messages, whose results are, scopes, threads,
// default-made managers.
#include "tidepool/ndarray/manager/nd_manager.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string MessageOf(const std::function<void()>& call,
                      absl::StatusCode code = absl::StatusCode::kFailedPrecondition) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

class NdManagerTest : public ::testing::Test {
 protected:
  NdManagerTest() : root_(NDManager::NewRoot("test")), model_(root_.NewSubManager("model")) {}
  // What has changed below the root since the last call, or since the beginning.
  std::string Growth() {
    OwnershipSnapshot now = root_.Snapshot();
    std::string text = ToString(Diff(before_, now));
    before_ = std::move(now);
    return text;
  }
  NDManager root_, model_;
  OwnershipSnapshot before_;
};

// ---- messages -------------------------------------------------------------------------------

TEST_F(NdManagerTest, ACappedResultNamesOperatorOperandAndManager) {
  const NDArray x = model_.Ones({2, 3}), loose = Ones({2, 3});
  model_.Cap();
  EXPECT_EQ(MessageOf([&] { x + x; }),
            "Op [add]: a result of shape [2, 3] f32 would belong where argument X does: owner "
            "[model] is capped: what would stay in it is a leak; make it in a sub-manager, enter "
            "one with ManagerScope, or give an explicit destination");
  EXPECT_THAT(
      MessageOf([&] { loose* x; }),
      StartsWith("Op [multiply]: a result of shape [2, 3] f32 would belong where argument Y "
                 "does: owner [model] is capped: "));
  EXPECT_THAT(MessageOf([&] { model_.Zeros({5}, DType::kInt64); }),
              StartsWith("a new array of shape [5] i64: owner [model] is capped: "));
  ManagerScope scope(model_);
  EXPECT_THAT(MessageOf([&] { Zeros({5}); }), HasSubstr("owner [model] is capped"));
}

TEST_F(NdManagerTest, ACappedResultOfAListNamesTheNumber) {
  const NDArray list[] = {Ones({2}), model_.Ones({2})};
  model_.Cap();
  EXPECT_THAT(MessageOf([&] { Concat(list, 0); }),
              AllOf(HasSubstr("a result of shape [4] f32 would belong where argument 1 does"),
                    HasSubstr("owner [model] is capped")));
}

TEST_F(NdManagerTest, AClosedArrayNamesTheManagerThatClosedIt) {
  NDManager request = model_.NewSubManager("request");
  const NDArray x = request.Ones({2});
  request.Close();
  EXPECT_EQ(MessageOf([&] { x + x; }),
            "Op [add] X argument was closed before the call (shape [2]): by owner "
            "[model/request]");
  NDArray by_hand = model_.Ones({2});
  by_hand.Close();
  EXPECT_EQ(MessageOf([&] { by_hand + by_hand; }),
            "Op [add] X argument was closed before the call (shape [2])");
}

TEST_F(NdManagerTest, AnArrayThatEndsWithItsLastLoanNamesTheBorrower) {
  NDManager borrower = model_.NewSubManager("borrower"), owner = model_.NewSubManager("owner");
  const NDArray x = owner.Ones({2});
  borrower.TempAttach(x);
  owner.Close();
  borrower.Close();
  EXPECT_THAT(MessageOf([&] { x.Dup(); }), HasSubstr("by owner [model/borrower]"));
}

// Names of a manager whose parent has ended, and whose record another has now.
TEST_F(NdManagerTest, AStrangerIsNotTakenForTheParent) {
  NDManager child;
  {
    NDManager parent = root_.NewSubManager("parent");
    child = parent.NewSubManager("child");
  }
  const NDManager stranger = root_.NewSubManager("stranger");
  EXPECT_THAT(MessageOf([&] { child.Attach(Ones({2})); }),
              HasSubstr("owner [parent/child] is closed"));
}

TEST_F(NdManagerTest, ANewManagerHasNothingOfTheOneWhoseRecordItGot) {
  { model_.NewSubManager("large").Zeros({1 << 16}); }
  const NDManager root = NDManager::NewRoot("small");
  EXPECT_EQ(root.Snapshot()[0].peak_bytes, 0);
  { root_.NewSubManager("large").Zeros({1 << 16}); }
  EXPECT_EQ(root_.NewSubManager("small").Snapshot()[0].peak_bytes, 0);
}

TEST(DefaultMadeManager, IsNoManager) {
  NDManager none;
  EXPECT_FALSE(none.is_open());
  EXPECT_FALSE(none.ref());
  EXPECT_EQ(none.ref().ToString(), "no manager");
  EXPECT_EQ(none.name(), "");
  EXPECT_EQ(none.arrays() + none.bytes() + none.loans(), 0);
  EXPECT_TRUE(none.Snapshot().empty());
  const NDArray x = Ones({2});
  EXPECT_FALSE(none.Manages(x));
  EXPECT_THAT(MessageOf([&] { none.Attach(x); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.Zeros({2}); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.NewSubManager(); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { none.Close(); }), HasSubstr("moved from"));
  EXPECT_THAT(MessageOf([&] { ManagerScope scope(none); }), HasSubstr("moved from"));
}

TEST_F(NdManagerTest, MovingAManagerMovesItsArraysAndClosesTheTargets) {
  NDManager a = model_.NewSubManager("a"), b = model_.NewSubManager("b");
  const NDArray x = a.Ones({2}), y = b.Ones({2});
  b = std::move(a);
  EXPECT_EQ(b.name(), "a");
  EXPECT_TRUE(b.Manages(x));
  EXPECT_TRUE(y.is_closed());
  EXPECT_FALSE(a.is_open());
}

// ---- whose results are ----------------------------------------------------------------------

TEST_F(NdManagerTest, AnExplicitDestinationWorksThoughTheOperandsManagerIsCapped) {
  NDManager out = root_.NewSubManager("out");
  const NDArray x = model_.Ones({2, 2});
  NDArray z = out.Zeros({2, 2});
  model_.Cap();
  AddInto(x, x, z);
  MatMulInto(x, x, z);
  EXPECT_TRUE(out.Manages(z));
  EXPECT_EQ(out.arrays(), 1);
}

TEST_F(NdManagerTest, CastsWithinOperatorsLeaveNothing) {
  NDManager step = root_.NewSubManager("step");
  const NDArray x = model_.Ones({4}), n = model_.Ones({4}, DType::kInt64);
  const NDArray b = model_.Ones({4}, DType::kBool);
  Growth();
  model_.Cap();
  {
    ManagerScope scope(step);
    for (int i = 0; i < 100; ++i) {
      const NDArray z = n + x;
      ASSERT_EQ(z.dtype(), DType::kFloat64);
      ASSERT_EQ(step.arrays(), 1);
      Mean(n);
      x / n - b* n;
    }
  }
  EXPECT_EQ(Growth(), "");
  EXPECT_LE(step.Snapshot()[0].peak_bytes, 4 * 32);  // results alone, never the operands cast
}

TEST_F(NdManagerTest, OperatorsOfSeveralResultsGiveAllToOne) {
  NDManager step = root_.NewSubManager("step");
  const NDArray x = model_.Ones({4});
  ManagerScope scope(step);
  const auto top = TopK(x, 2);
  EXPECT_TRUE(step.Manages(top.values) && step.Manages(top.places));
  EXPECT_EQ(step.arrays(), 2);
}

TEST_F(NdManagerTest, ViewsAndEmptyArraysAreNoArraysOfTheirOwn) {
  const NDArray x = model_.Ones({2, 3}), empty = model_.Zeros({0, 3});
  const NDArray view = x.Transpose().Index(0, 1);
  EXPECT_EQ(model_.arrays(), 1);
  EXPECT_TRUE(model_.Manages(view));
  EXPECT_FALSE(NDManager::ManagerOf(empty));
  model_.Attach(empty);
  model_.Detach(view);
  EXPECT_FALSE(NDManager::ManagerOf(x));
  EXPECT_EQ(model_.arrays(), 0);
}

TEST_F(NdManagerTest, AThousandRequestsLeaveTheCountsAsTheyWere) {
  const NDArray weights = model_.Ones({8, 4});
  model_.Cap();
  Growth();
  for (int i = 0; i < 1000; ++i) {
    NDManager request = model_.NewSubManager("request");
    ManagerScope scope(request);
    request.TempAttach(weights);
    const NDArray y = Softmax(MatMul(Ones({2, 8}), weights));
    ASSERT_EQ(request.arrays(), 1);
    ASSERT_EQ(request.loans(), 1);
  }
  EXPECT_EQ(Growth(), "");
}

// ---- scopes, caps, threads ------------------------------------------------------------------

TEST_F(NdManagerTest, ManagerScopesThatEndOutOfOrderArePutRight) {
  std::string (*const owner_of)(const NDArray&) = [](const NDArray& x) {
    return NDManager::ManagerOf(x).ToString();
  };
  NDManager a = model_.NewSubManager("a");
  auto b = std::make_unique<NDManager>(model_.NewSubManager("b"));
  std::optional<ManagerScope> outer(a), inner(*b);
  outer.reset();
  EXPECT_EQ(owner_of(Ones({2})), "owner [model/b]");
  inner.reset();
  b.reset();
  EXPECT_EQ(owner_of(Ones({2})), "no manager");
}

TEST_F(NdManagerTest, CapsAreTakenBackOneByOne) {
  model_.Cap();
  model_.Cap();
  model_.Uncap();
  EXPECT_TRUE(model_.is_capped());
  model_.Uncap();
  EXPECT_FALSE(model_.is_capped());
  EXPECT_THAT(MessageOf([&] { model_.Uncap(); }), HasSubstr("Uncap: owner [model] is not capped"));
}

// Who reads an array that is closed meanwhile gets an error or what was in it, never what was put
// into its memory afterwards. One element is read too fast to be met but by ThreadSanitizer.
TEST_F(NdManagerTest, WhatIsReadWhileItsManagerClosesStaysUntilItIsRead) {
  static constexpr int kElements = 1 << 17;
  static std::vector<float> memory(kElements);
  const auto scribble = [](void*) { std::fill(memory.begin(), memory.end(), -1.0f); };
  const std::vector<float> expected(kElements, 1.0f);
  int wrong = 0, read = 0;
  std::atomic<int> round{-1}, done{-1};
  NDManager manager;
  constexpr int kRounds = 150;
  std::thread closer([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
      for (int spin = i * 997 % 100000; spin > 0; --spin)
        std::atomic_signal_fence(std::memory_order_seq_cst);
      manager.Close();
      done.store(i, std::memory_order_release);
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    std::fill(memory.begin(), memory.end(), 1.0f);
    manager = root_.NewSubManager("read");
    const NDArray x(BufferHandle(NewImportedBuffer(memory.data(), kElements * sizeof(float),
                                                   scribble, nullptr)),
                    {kElements}, DType::kFloat32);
    const NDArray few = x.Slice(0, 0, 500);
    const std::string text = few.ToString();
    manager.Attach(x);
    round.store(i, std::memory_order_release);
    try {
      for (;; ++read) {
        switch (i % 3) {
          case 0:
            wrong += x.ToVector<float>() != expected;
            break;
          case 1:
            wrong += few.ToString() != text;
            break;
          case 2:
            wrong += x.At<float>({kElements - 1}) != 1.0f;
            break;
        }
      }
    } catch (const Error& error) {
      wrong += error.message().find("was closed before the call") == std::string::npos;
    }
    while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
  }
  closer.join();
  EXPECT_EQ(wrong, 0) << "of " << read << " reads";
}

}  // namespace
}  // namespace tidepool
