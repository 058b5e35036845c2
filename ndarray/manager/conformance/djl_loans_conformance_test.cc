// DJL's behaviour of borrowing (tempAttach), 3.3 of its numbered list, and the cases that its numbers
// leave out and our rules decide. An array is where a stack of loans says it should be, in whichever
// order borrowers and owner close. Where DJL's behaviour is a defect, the comment says which.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/manager/conformance/djl_places.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::djl {
namespace {

class DjlLoans : public DjlPlaces {
 protected:
  DjlLoans() : a_(New("a")), b_(New("b")), c_(New("c")), x_(In(a_, 2)) {}
  void TearDown() override {
    x_ = NDArray();
    DjlPlaces::TearDown();
  }
  NDManager a_, b_, c_;
  NDArray x_;
};
TIDEPOOL_ON_EVERY_PLACE(DjlLoans);

TEST_P(DjlLoans, DjlCase060ALentArrayIsWithItsBorrower) {
  b_.TempAttach(x_);
  EXPECT_TRUE(b_.Manages(x_));
  EXPECT_FALSE(a_.Manages(x_));
  EXPECT_EQ(a_.arrays(), 1);  // whose it is has not changed
  EXPECT_EQ(b_.arrays(), 0);
  EXPECT_EQ(b_.loans(), 1);
}

TEST_P(DjlLoans, DjlCase061WhenTheBorrowerClosesItIsBack) {
  b_.TempAttach(x_);
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
  a_.Close();
  EXPECT_FALSE(Alive(x_));
}

TEST_P(DjlLoans, DjlCase062TheSameBetweenManagersThatAreNotRelated) {
  NDManager other = NewUnrelated("other");
  other.TempAttach(x_);
  EXPECT_TRUE(other.Manages(x_));
  other.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

TEST_P(DjlLoans, DjlCase063ResultsMadeWhileItIsLentAreTheBorrowers) {
  b_.TempAttach(x_);
  const NDArray y = x_ + x_;
  EXPECT_TRUE(b_.Manages(y));
  b_.Close();
  EXPECT_FALSE(Alive(y));
  EXPECT_TRUE(Holds(x_, 2));
  EXPECT_EQ(a_.arrays(), 1);
}

TEST_P(DjlLoans, DjlCase064AChainThatEndsInReverseOrderEndsWithTheOwner) {
  b_.TempAttach(x_);
  c_.TempAttach(x_);
  EXPECT_TRUE(c_.Manages(x_));
  c_.Close();
  EXPECT_TRUE(b_.Manages(x_));
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

// DJL closes the array, though its owner is open.
TEST_P(DjlLoans, DjlCase065AChainThatEndsInAnyOrderEndsWithTheOwner) {
  b_.TempAttach(x_);
  c_.TempAttach(x_);
  b_.Close();
  EXPECT_TRUE(c_.Manages(x_));
  c_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

TEST_P(DjlLoans, DjlCase065ChainsOfFourEndRightInEveryOrder) {
  std::array<int, 5> order = {0, 1, 2, 3, 4};  // 0: the owner, then the borrowers
  do {
    NDManager owner = New("owner");
    std::vector<NDManager> borrowers;
    const NDArray x = In(owner, 2);
    for (int i = 0; i < 4; ++i) {
      borrowers.push_back(New("borrower"));
      borrowers.back().TempAttach(x);
    }
    std::vector<int> left = {1, 2, 3, 4};
    bool owned = true;
    for (const int i : order) {
      if (i == 0) {
        owner.Close();
        owned = false;
      } else {
        borrowers[static_cast<size_t>(i - 1)].Close();
        std::erase(left, i);
      }
      ASSERT_EQ(Alive(x), owned || !left.empty());
      if (!Alive(x)) continue;
      const NDManager& expected =
          left.empty() ? owner : borrowers[static_cast<size_t>(left.back() - 1)];
      ASSERT_TRUE(expected.Manages(x));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_P(DjlLoans, DjlCase066WhenTheOwnerClosesFirstItLivesUntilTheLastBorrowerCloses) {
  b_.TempAttach(x_);
  c_.TempAttach(x_);
  a_.Close();
  EXPECT_TRUE(Holds(x_, 2));
  EXPECT_EQ(a_.arrays(), 0);
  c_.Close();
  EXPECT_TRUE(Holds(x_, 2));
  EXPECT_TRUE(b_.Manages(x_));
  b_.Close();
  EXPECT_FALSE(Alive(x_));
}

// DJL takes the borrower for the owner, and closes the array.
TEST_P(DjlLoans, DjlCase067LendingTwiceIsOneLoan) {
  b_.TempAttach(x_);
  b_.TempAttach(x_);
  EXPECT_EQ(b_.loans(), 1);
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

// DJL: as before.
TEST_P(DjlLoans, DjlCase068AnArrayTwiceInOneCallIsOneLoan) {
  b_.TempAttachAll({x_, x_, NDList{x_, x_.Reshape({2, 2})}});
  EXPECT_EQ(b_.loans(), 1);
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

// DJL gives it back to the former owner nevertheless.
TEST_P(DjlLoans, DjlCase069LentAndThenAttachedIsTheBorrowersOwn) {
  b_.TempAttach(x_);
  b_.Attach(x_);
  EXPECT_EQ(b_.loans(), 0);
  EXPECT_EQ(b_.arrays(), 1);
  EXPECT_EQ(a_.arrays(), 0);
  b_.Close();
  EXPECT_FALSE(Alive(x_));
}

TEST_P(DjlLoans, DjlCase070LentAndThenAttachedToTheOwnerStaysWithTheOwner) {
  b_.TempAttach(x_);
  a_.Attach(x_);
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_EQ(b_.loans(), 0);
  b_.Close();
  EXPECT_TRUE(Holds(x_, 2));
}

TEST_P(DjlLoans, DjlCase071LentAndThenAttachedToAThirdIsTheThirds) {
  b_.TempAttach(x_);
  c_.Attach(x_);
  a_.Close();
  b_.Close();
  EXPECT_TRUE(c_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
  c_.Close();
  EXPECT_FALSE(Alive(x_));
}

TEST_P(DjlLoans, DjlCase072LentAndThenDetachedSurvivesBoth) {
  b_.TempAttach(x_);
  b_.Detach(x_);
  EXPECT_FALSE(NDManager::ManagerOf(x_));
  a_.Close();
  b_.Close();
  EXPECT_TRUE(Holds(x_, 2));
}

TEST_P(DjlLoans, DjlCase073LentAndThenClosedIsFreedOnce) {
  b_.TempAttach(x_);
  x_.Close();
  EXPECT_EQ(a_.arrays(), 0);
  EXPECT_EQ(b_.loans(), 0);
  b_.Close();
  a_.Close();
}  // TearDown counts

// DJL makes a loan of it, and closes the array at its end.
TEST_P(DjlLoans, DjlCase074LendingToTheOwnerChangesNothing) {
  a_.TempAttach(x_);
  EXPECT_EQ(a_.loans(), 0);
  EXPECT_EQ(a_.arrays(), 1);
  EXPECT_TRUE(a_.Manages(x_));
}

// DJL gives it back to the root, which never closes.
TEST_P(DjlLoans, DjlCase075ADetachedArrayThatWasLentIsItsHandlesAgain) {
  a_.Detach(x_);
  b_.TempAttach(x_);
  EXPECT_TRUE(b_.Manages(x_));
  b_.Close();
  EXPECT_FALSE(NDManager::ManagerOf(x_));
  EXPECT_TRUE(Holds(x_, 2));
}

TEST_P(DjlLoans, DjlCase076ACappedManagerMayBorrow) {
  b_.Cap();
  b_.TempAttach(x_);
  EXPECT_TRUE(b_.Manages(x_));
  ExpectRefused(top(), [&] { x_ + x_; });
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
}

TEST_P(DjlLoans, DjlCase077ALoanComesBackToACappedOwner) {
  b_.TempAttach(x_);
  a_.Cap();
  b_.Close();
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
  c_.TempAttach(x_);
  c_.Ret(x_);  // what is only lent goes back to where it was
  EXPECT_TRUE(a_.Manages(x_));
}

TEST_P(DjlLoans, DjlCase078LoansToAncestorsAndDescendantsWork) {
  NDManager child = a_.NewSubManager("child"), grandchild = child.NewSubManager("grandchild");
  const NDArray y = In(child, 3);
  a_.TempAttach(y);
  grandchild.TempAttach(y);
  EXPECT_TRUE(grandchild.Manages(y));
  grandchild.Close();
  EXPECT_TRUE(a_.Manages(y));
  child.Close();  // the owner, while its parent borrows
  EXPECT_TRUE(Holds(y, 3));
  a_.Close();
  EXPECT_FALSE(Alive(y));
}

TEST_P(DjlLoans, DjlCase079AnExceptionWhileItIsLentGivesItBack) {
  try {
    NDManager sub = b_.NewSubManager("sub");
    sub.TempAttach(x_);
    const NDArray y = x_ + x_;
    throw std::runtime_error("half way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_TRUE(Holds(x_, 2));
  EXPECT_EQ(top().Snapshot()[0].subtree_arrays, 1);
}

TEST_P(DjlLoans, DjlCase080ALoanMovesNoBytes) {
  const void* bytes = x_.raw_data();
  b_.TempAttach(x_);
  EXPECT_EQ(x_.raw_data(), bytes);
  b_.Close();
  EXPECT_EQ(x_.raw_data(), bytes);
}

TEST_P(DjlLoans, DjlCase127AScopedComputationThatThrowsGivesItsInputsBack) {
  const OwnershipSnapshot before = top().Snapshot();
  EXPECT_THROW(b_.Scoped({x_},
                         [&](NDManager& sub) -> NDArray {
                           EXPECT_TRUE(sub.Manages(x_));
                           const NDArray y = x_ + x_;
                           throw std::runtime_error("half way");
                         }),
               std::runtime_error);
  EXPECT_TRUE(a_.Manages(x_));
  EXPECT_EQ(ToString(Diff(before, top().Snapshot())), "");
}

}  // namespace
}  // namespace tidepool::djl
