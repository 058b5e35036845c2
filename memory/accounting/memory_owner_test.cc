#include "tidepool/memory/accounting/memory_owner.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

TEST(MemoryOwner, OneNamePerParentIsOneNode) {
  MemoryOwner& network = MemoryOwner::Process().Child("network");
  EXPECT_EQ(&MemoryOwner::Process().Child("network"), &network);
  EXPECT_NE(&network.Child("network"), &network);
  EXPECT_NE(&network.Tagged("x"), &network.Child("x"));  // a tag is not an owner
  EXPECT_EQ(&network.Tagged("x"), &network.Tagged("x"));
  EXPECT_EQ(network.Child("workspace a").parent(), &network);
}

TEST(MemoryOwner, PathsAndTags) {
  MemoryOwner& step = MemoryOwner::Process().Child("net").Child("step");
  EXPECT_EQ(MemoryOwner::Process().Path(), "process");
  EXPECT_EQ(step.Path(), "net/step");
  EXPECT_EQ(step.Tag(), "");
  MemoryOwner& tagged = step.Tagged("layer 1").Tagged("filter");
  EXPECT_EQ(tagged.Path(), "net/step");
  EXPECT_EQ(tagged.Tag(), "layer 1/filter");
  // An owner below a tag leaves the tag.
  EXPECT_EQ(&tagged.Child("inner"), &step.Child("inner"));
}

TEST(MemoryOwner, AllListsParentsBeforeChildren) {
  MemoryOwner& child = MemoryOwner::Process().Child("listed").Child("below");
  const std::vector<MemoryOwner*> all = MemoryOwner::All();
  EXPECT_EQ(all.front(), &MemoryOwner::Process());
  const auto at = std::find(all.begin(), all.end(), &child);
  ASSERT_NE(at, all.end());
  EXPECT_LT(std::find(all.begin(), all.end(), child.parent()), at);
}

TEST(MemoryOwner, ScopesNestAndRestore) {
  EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
  {
    MemoryOwnerScope owner("loader");
    EXPECT_EQ(MemoryOwner::Current().Path(), "loader");
    {
      MemoryTagScope tag("imported");
      MemoryOwnerScope inner("part");
      EXPECT_EQ(MemoryOwner::Current().Path(), "loader/part");
      MemoryOwnerScope elsewhere(MemoryOwner::Process());
      EXPECT_EQ(MemoryOwner::Current().Path(), "process");
    }
    EXPECT_EQ(MemoryOwner::Current().Tag(), "");
    EXPECT_EQ(MemoryOwner::Current().Path(), "loader");
  }
  EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
}

TEST(MemoryOwner, ScopesAreRestoredByExceptions) {
  try {
    MemoryOwnerScope owner("throws");
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
}

TEST(MemoryOwner, EachThreadHasItsOwnScopesAndSharesTheTree) {
  MemoryOwnerScope owner("mine");
  std::vector<MemoryOwner*> seen(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&seen, t] {
      EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
      for (int i = 0; i < 200; ++i) {
        MemoryOwnerScope shared("shared " + std::to_string(i));
        seen[t] = &MemoryOwner::Current();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (MemoryOwner* node : seen) EXPECT_EQ(node, seen[0]);
}

// Last: it fills the tree of this process.
TEST(MemoryOwnerZ, BeyondTheLimitNewNamesShareANode) {
  MemoryOwner& many = MemoryOwner::Process().Child("many");
  MemoryOwner& known = many.Child("0");
  MemoryOwner* last = nullptr;
  for (uint32_t i = 0; i < kMaxMemoryOwners; ++i) last = &many.Child(std::to_string(i));
  EXPECT_NE(last, &many);
  EXPECT_TRUE(last->is_shared());
  EXPECT_EQ(last->Path(), "many/(others)");
  EXPECT_EQ(&many.Child("another"), last);
  EXPECT_EQ(&last->Child("below"), last);
  EXPECT_EQ(&last->Tagged("tag"), last);
  EXPECT_EQ(&many.Child("0"), &known);  // known ones are still found
  EXPECT_FALSE(known.is_shared());
  MemoryOwner& tagged = many.Tagged("new");
  EXPECT_TRUE(tagged.is_shared() && tagged.is_tag());
  EXPECT_EQ(tagged.Path(), "many");
  EXPECT_EQ(tagged.Tag(), "(others)");
  // Limits are of one owner.
  const auto message = [](MemoryOwner& owner) {
    return std::string(
        CatchStatus([&] { MemoryBudget::Global().SetOwnerLimit(owner, Host(), 1); }).message());
  };
  EXPECT_EQ(
      message(many.Child("another")),
      "memory budget: limit of [many/(others)]: there are 65536 owners, which is all that have "
      "limits of their own; this one is all others of [many] together");
  EXPECT_NE(message(MemoryOwner::Process().Child("late")), "");
  EXPECT_EQ(MemoryBudget::Global().Of(Host()).limit_bytes, MemoryBudget::kUnlimited);
  const auto all = MemoryOwner::All();
  EXPECT_NE(std::find(all.begin(), all.end(), last), all.end());
}

}  // namespace
}  // namespace tidepool
