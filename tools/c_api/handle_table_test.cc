#include "tidepool/tools/c_api/handle_table.h"

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool::c_api {

void ThrowNoHandle(const char* function, HandleKind, const void*) {
  ThrowInvalidArgument(function);
}

namespace {

using Objects = HandleTable<std::shared_ptr<int>, HandleKind::kArray>;

TEST(HandleTable, AnObjectGoesWithItsHandleOrTheLastCallThatUsesIt) {
  static Objects objects;
  auto object = std::make_shared<int>(7);
  void* const handle = objects.Add(object);
  {
    Objects::Pinned pinned = objects.Pin("f", handle);
    EXPECT_EQ(**pinned, 7);
    objects.Release("f", handle);
    EXPECT_EQ(object.use_count(), 2);
    EXPECT_THROW(objects.Pin("f", handle), Error);
    EXPECT_THROW(objects.Release("f", handle), Error);
    EXPECT_EQ(**pinned, 7);
  }
  EXPECT_EQ(object.use_count(), 1);
  objects.Release("f", nullptr);
}

TEST(HandleTable, HandlesOfOneSlotAreDifferent) {
  static Objects objects;
  std::set<void*> handles;
  for (int i = 0; i < 1000; ++i) {
    void* const handle = objects.Add(std::make_shared<int>(i));
    EXPECT_TRUE(handles.insert(handle).second);
    EXPECT_EQ(reinterpret_cast<uint64_t>(handle) & 1, 1u);
    objects.Release("f", handle);
  }
  for (void* handle : handles) EXPECT_THROW(objects.Pin("f", handle), Error);
}

TEST(HandleTable, HandlesOfOtherTablesAndAddressesAreNone) {
  static Objects objects;
  static HandleTable<int, HandleKind::kModel> others;
  void* const handle = objects.Add(nullptr);
  void* const other = others.Add(1);
  EXPECT_THROW(objects.Pin("f", other), Error);
  EXPECT_THROW(objects.Pin("f", &objects), Error);
  EXPECT_THROW(objects.Pin("f", reinterpret_cast<void*>(~uint64_t{0})), Error);
  EXPECT_THROW(objects.Pin("f", nullptr), Error);
  objects.Release("f", handle);
  others.Release("f", other);
}

TEST(HandleTable, AConstructorThatThrowsLeavesNothing) {
  struct Picky {
    explicit Picky(bool throws) {
      if (throws) ThrowInternal("no");
    }
  };
  static HandleTable<Picky, HandleKind::kArray> objects;
  EXPECT_THROW(objects.Add(true), Error);
  void* const first = objects.Add(false);
  objects.Release("f", first);
}

// Each object is released by one of the threads that try, while others pin it, and its slot is taken again meanwhile.
TEST(HandleTable, OneOfTheThreadsThatReleaseAHandleDoes) {
  static Objects objects;
  constexpr int kThreads = 4, kRounds = 2000, kHandles = 8;
  std::vector<std::shared_ptr<int>> counted(kHandles, std::make_shared<int>(0));
  for (int i = 0; i < kHandles; ++i) counted[i] = std::make_shared<int>(i);
  std::vector<std::atomic<void*>> handles(kHandles);
  for (int i = 0; i < kHandles; ++i) handles[i] = objects.Add(counted[i]);
  std::atomic<int> released{0}, added{kHandles};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        const int i = (round * 7 + t * 3) % kHandles;
        void* handle = handles[i];
        try {
          const Objects::Pinned pinned = objects.Pin("f", handle);
          if (**pinned != i) ADD_FAILURE() << "object " << **pinned << " of handle " << i;
        } catch (const Error&) {
        }
        if (round % 3 != 0) continue;
        try {
          objects.Release("f", handle);
        } catch (const Error&) {
          continue;
        }
        ++released;
        handles[i] = objects.Add(counted[i]);
        ++added;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kHandles; ++i) {
    objects.Release("f", handles[i]);
    ++released;
  }
  EXPECT_EQ(released, added);
  for (const auto& object : counted) EXPECT_EQ(object.use_count(), 1);
}

}  // namespace
}  // namespace tidepool::c_api
