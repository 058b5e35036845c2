// Allocators of workspaces, and resources of ours as the standard library's.
#include "tidepool/memory/pmr/workspace_allocator.h"

#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/pmr_resource.h"
#include "tidepool/memory/resource/count_resource.h"
#include "tidepool/memory/resource/limit_resource.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using Numbers = std::vector<int, WorkspaceAllocator<int>>;

class WorkspaceAllocatorTest : public testing::Test {
 protected:
  Workspace a_{"a", WorkspaceConfig::Inference()}, b_{"b", WorkspaceConfig::Inference()};
  WorkspaceResource in_a_{a_}, also_in_a_{a_}, in_b_{b_};
  WorkspaceScope scope_a_{a_};
  WorkspaceScope scope_b_{b_};
};

TEST_F(WorkspaceAllocatorTest, EqualAreThoseOfOneWorkspaceWhateverTheirType) {
  const WorkspaceAllocator<int> one(in_a_), two(also_in_a_), other(in_b_);
  const WorkspaceAllocator<double> rebound(one);
  EXPECT_TRUE(one == two);
  EXPECT_TRUE(one == rebound);
  EXPECT_FALSE(one == other);
  EXPECT_TRUE(rebound != other);
}

TEST_F(WorkspaceAllocatorTest, ACopyIsMadeInTheWorkspaceOfItsOriginal) {
  const Numbers numbers(1000, 7, WorkspaceAllocator<int>(in_a_));
  const Numbers copy(numbers);
  EXPECT_EQ(copy.get_allocator().resource(), &in_a_);
  const Numbers elsewhere(numbers, WorkspaceAllocator<int>(in_b_));
  EXPECT_EQ(elsewhere.get_allocator().resource(), &in_b_);
  EXPECT_EQ(elsewhere, numbers);
}

TEST_F(WorkspaceAllocatorTest, AssigningLeavesAContainerWhereItIs) {
  Numbers to(WorkspaceAllocator<int>{in_a_});
  Numbers from(1000, 7, WorkspaceAllocator<int>(in_b_));
  to = from;
  EXPECT_EQ(to.get_allocator().resource(), &in_a_);
  const int* const of_from = from.data();
  to = std::move(from);  // of another workspace: element by element
  EXPECT_EQ(to.get_allocator().resource(), &in_a_);
  EXPECT_NE(to.data(), of_from);
  EXPECT_EQ(to, Numbers(1000, 7, WorkspaceAllocator<int>(in_a_)));
  Numbers same(2000, 9, WorkspaceAllocator<int>(also_in_a_));
  const int* const of_same = same.data();
  to = std::move(same);  // of the same one: the pointer
  EXPECT_EQ(to.data(), of_same);
  EXPECT_EQ(to.get_allocator().resource(), &in_a_);
}

TEST_F(WorkspaceAllocatorTest, MovingConstructionTakesTheAllocatorAlong) {
  Numbers from(1000, 7, WorkspaceAllocator<int>(in_b_));
  const int* const data = from.data();
  const Numbers to(std::move(from));
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.get_allocator().resource(), &in_b_);
}

TEST_F(WorkspaceAllocatorTest, SwappingSwapsAllocatorsToo) {
  Numbers one(1000, 1, WorkspaceAllocator<int>(in_a_));
  Numbers two(500, 2, WorkspaceAllocator<int>(in_b_));
  const int* const of_one = one.data();
  swap(one, two);
  EXPECT_EQ(two.data(), of_one);
  EXPECT_EQ(two.get_allocator().resource(), &in_a_);
  EXPECT_EQ(one.get_allocator().resource(), &in_b_);
  one.resize(5000);  // where its allocator says
  EXPECT_EQ(one[499], 2);
}

TEST_F(WorkspaceAllocatorTest, ServesNodesAndOverAlignedTypes) {
  struct alignas(256) Wide {
    double value = 3;
  };
  std::map<int, int, std::less<>, WorkspaceAllocator<std::pair<const int, int>>> map(
      WorkspaceAllocator<std::pair<const int, int>>{in_a_});
  std::vector<Wide, WorkspaceAllocator<Wide>> wide(WorkspaceAllocator<Wide>{in_a_});
  for (int i = 0; i < 1000; ++i) {
    map[i] = i;
    wide.emplace_back();
    ASSERT_EQ(reinterpret_cast<uintptr_t>(wide.data()) % 256, 0u);
  }
  EXPECT_EQ(map.size(), 1000u);
}

TEST_F(WorkspaceAllocatorTest, RefusesAsTheStandardSays) {
  WorkspaceAllocator<int> allocator(in_a_);
  EXPECT_THROW((void)allocator.allocate(SIZE_MAX / 2), std::bad_array_new_length);
  EXPECT_THROW((void)allocator.allocate(SIZE_MAX / 8), OutOfMemoryBadAlloc);
}

TEST(PmrResourceTest, ServesBlocksOfAnyResourceAtAnyAlignment) {
  PagesResource pages;
  Pool pool(pages, size_t{1} << 20, 64);  // refuses alignments beyond that
  CountResource counted(pool);
  PmrResource resource(counted);
  RequestMaker make{std::mt19937(3)};
  BlockOracle oracle;
  for (int step = 0; step < 3000 && !HasFatalFailure(); ++step) {
    if (oracle.size() > 0 && make.random() % 2 == 0) {
      const OutBlock block = oracle.Remove(make.random() % oracle.size());
      resource.deallocate(block.data, block.bytes, block.alignment);
    } else {
      const size_t bytes = make.Bytes(), alignment = make.Alignment();
      oracle.Add(resource.allocate(bytes, alignment), bytes, alignment);
    }
  }
  while (oracle.size() > 0) {
    const OutBlock block = oracle.Remove(0);
    resource.deallocate(block.data, block.bytes, block.alignment);
  }
  for (size_t alignment = 1; alignment <= (size_t{1} << 22); alignment *= 2) {
    void* const block = resource.allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u) << alignment;
    resource.deallocate(block, 100, alignment);
  }
  EXPECT_EQ(counted.counts().live_blocks, 0);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(PmrResourceTest, RefusalsAreBadAllocWithTheResourcesReason) {
  PagesResource pages;
  LimitResource limited(pages, size_t{1} << 20);
  PmrResource resource(limited);
  try {
    (void)resource.allocate(size_t{2} << 20);
    FAIL();
  } catch (const std::bad_alloc& error) {
    EXPECT_NE(std::string(error.what()).find("1048576"), std::string::npos) << error.what();
  }
  const volatile size_t too_many = SIZE_MAX - 8;
  EXPECT_THROW((void)resource.allocate(too_many), std::bad_alloc);
  EXPECT_THROW((void)resource.allocate(8, size_t{1} << 60), std::bad_alloc);
  std::pmr::vector<int> numbers(1000, 5, &resource);
  EXPECT_EQ(numbers[999], 5);
}

TEST(PmrResourceTest, EqualAreThoseOfOneResourceOfTheHost) {
  PagesResource pages, others;
  PmrResource one(pages), two(pages), other(others);
  EXPECT_TRUE(one.is_equal(two));
  EXPECT_FALSE(one.is_equal(other));
  EXPECT_FALSE(one.is_equal(*std::pmr::new_delete_resource()));
  PagesResource on_device({}, SimulatedDevice::Get());
  EXPECT_THROW(PmrResource{on_device}, Error);
}

}  // namespace
}  // namespace tidepool
