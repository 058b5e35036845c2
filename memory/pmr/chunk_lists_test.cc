// ChunkLists by itself: which chunks without blocks stay, outside of cycles and in them.
#include "tidepool/memory/pmr/chunk_lists.h"

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/pmr/block_chunk.h"
#include "tidepool/memory/pmr/size_classes.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {
namespace {

using internal::BlockChunk;
using internal::ChunkLists;
using internal::kBlockChunkBytes;
using internal::kSizeClasses;
using internal::OutsideArena;

// Chunks of the heap; counts those that came back.
class CountingChunks final : public MemoryResource {
 public:
  ~CountingChunks() override {
    for (auto& [data, chunk] : chunks_) std::free(data);
  }
  Allocation Allocate(size_t, size_t) override {
    auto* const data =
        static_cast<std::byte*>(std::aligned_alloc(kBlockChunkBytes, kBlockChunkBytes));
    chunks_[data] = true;
    return {data, data};
  }
  void Release(void* token, size_t, size_t) noexcept override {
    ++released;
    UnpoisonBlock(token, kBlockChunkBytes - kPoisonTailBytes);
    chunks_.erase(token);
    std::free(token);
  }
  Device device() const override { return Host(); }
  std::string Describe() const override { return "chunks"; }

  int released = 0;

 private:
  std::map<void*, bool> chunks_;
};

class CountedChunks {
 public:
  // One block of that class comes and goes.
  void Pair(int size_class) {
    void* block = lists_.TakeCounted(size_class);
    if (block == nullptr) {
      block = lists_.TakeFrom(chunks_.Allocate(kBlockChunkBytes, kBlockChunkBytes), size_class,
                              nullptr);
    }
    BlockChunk* const chunk = internal::ChunkOf(block);
    if (chunk->Put(block)) lists_.ToldCounted(chunk);
  }
  int64_t count() const { return lists_.count(); }
  int released() const { return chunks_.released; }

 private:
  CountingChunks chunks_;
  ChunkLists lists_{static_cast<OutsideArena*>(nullptr), chunks_};
};

TEST(ChunkListsTest, ChunksOfSizesThatComeAgainAreKept) {
  CountedChunks chunks;
  const auto round = [&] {
    for (int i = 0; i < kSizeClasses; ++i) chunks.Pair(i);
  };
  round();
  EXPECT_EQ(chunks.count(), ChunkLists::kLeastKept);  // once is not a habit
  for (int i = 0; i < 3; ++i) round();
  const int released = chunks.released();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(chunks.released(), released);
}

TEST(ChunkListsTest, ChunksThatAreNotUsedAnyMoreGo) {
  CountedChunks chunks;
  for (int i = 0; i < 10 * kSizeClasses; ++i) chunks.Pair(i % kSizeClasses);
  ASSERT_GT(chunks.count(), ChunkLists::kLeastKept);
  for (int i = 0; i < 20000; ++i) chunks.Pair(i % 2);
  EXPECT_LE(chunks.count(), ChunkLists::kLeastKept);
  const int released = chunks.released();
  for (int i = 0; i < 20000; ++i) chunks.Pair(i % 3);
  EXPECT_LE(chunks.released(), released + 1);
}

// ---- in cycles --------------------------------------------------------------------------------

// As a heap's, whose cycles are all on one thread at a time.
class ChunksOfCycles {
 public:
  void* Take(int size_class, const void* thread) {
    if (void* const block = lists_.Take(size_class)) return block;
    if (void* const block = lists_.TakeAvailable(size_class, thread)) return block;
    return lists_.TakeFrom(chunks_.Allocate(kBlockChunkBytes, kBlockChunkBytes), size_class,
                           thread);
  }
  void Put(void* block) {
    BlockChunk* const chunk = internal::ChunkOf(block);
    if (chunk->state == BlockChunk::kLate) {
      lists_.PutLate(chunk);
    } else if (chunk->Put(block)) {
      lists_.Told(chunk);
    }
  }
  ChunkLists& lists() { return lists_; }

 private:
  CountingChunks chunks_;
  int stands_for_a_heap_ = 0;
  ChunkLists lists_{reinterpret_cast<internal::CycleHeap*>(&stands_for_a_heap_), chunks_};
};

// Beside a model that says when each class had its last block: cycles with drawn classes, without any, on drawn threads, with
// blocks that come back late; a class's chunk stays until so many cycles had no block of it.
TEST(ChunkListsTest, ChunksStayForSoManyCyclesWithoutABlock) {
  std::mt19937 random(7);
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<uint32_t>(end));
  };
  for (const int kept : {1, 2, 5, 64}) {
    ChunksOfCycles chunks;
    ChunkLists& lists = chunks.lists();
    std::vector<void*> late;
    std::map<int, int> used_in;  // of classes whose chunk is there
    const int threads[3] = {};
    for (int cycle = 0; cycle < 3000; ++cycle) {
      const bool is_idle = below(4) == 0;
      if (!is_idle) {
        const void* const thread = &threads[below(3)];
        lists.SetThread(thread);
        const int few = below(2) == 0 ? 3 : kSizeClasses;
        for (int n = below(12); n >= 0; --n) {
          const int size_class = below(few);
          used_in[size_class] = cycle;
          std::vector<void*> blocks;
          for (int i = below(40); i >= 0; --i) {
            blocks.push_back(chunks.Take(size_class, thread));
            ASSERT_EQ(internal::ChunkOf(blocks.back())->thread.load(), thread);
            ASSERT_EQ(internal::ChunkOf(blocks.back())->size_class, size_class);
          }
          for (void* const block : blocks) chunks.Put(block);
        }
        if (below(8) == 0) {
          lists.Age(0, false);  // within the cycle
          used_in.clear();
          ASSERT_EQ(lists.count(), 0);
        }
        if (below(8) == 0) {
          const int size_class = below(kSizeClasses);
          late.push_back(chunks.Take(size_class, thread));
          used_in.erase(size_class);  // its chunk is set aside
        }
        const ChunkLists::Left left = lists.EndCycle();
        ASSERT_EQ(lists.late_blocks(), static_cast<int64_t>(late.size()));
        ASSERT_LE(left.blocks, 1);
      }
      lists.Age(static_cast<uint32_t>(kept), is_idle);
      std::erase_if(used_in, [&](const auto& entry) { return cycle - entry.second >= kept; });
      ASSERT_EQ(lists.count(), static_cast<int64_t>(used_in.size()))
          << "cycle " << cycle << ", kept for " << kept;
      if (!late.empty() && below(4) == 0) {
        chunks.Put(late.back());
        late.pop_back();
      }
    }
    for (void* const block : late) chunks.Put(block);
    lists.Age(0, true);
    EXPECT_EQ(lists.count(), 0);
  }
}

// Kinds of cycles of other sizes in turns: what one of them left serves the other at once where it is asked for.
TEST(ChunkListsTest, ChunksOfOtherSizesServeWhereTheyAreWanted) {
  for (const bool wanted : {false, true}) {
    CountingChunks chunks;
    int stands_for_a_heap = 0;
    ChunkLists lists(reinterpret_cast<internal::CycleHeap*>(&stands_for_a_heap), chunks);
    const int thread = 0;
    for (int cycle = 0; cycle < 50; ++cycle) {
      for (int size_class = cycle % 3; size_class < 30; size_class += 3) {
        void* block = lists.Take(size_class);
        if (block == nullptr) block = lists.TakeAvailable(size_class, &thread);
        if (block == nullptr && wanted) block = lists.TakeFromOther(size_class, &thread);
        if (block == nullptr) {
          block = lists.TakeFrom(chunks.Allocate(kBlockChunkBytes, kBlockChunkBytes), size_class,
                                 &thread);
        }
        BlockChunk* const chunk = internal::ChunkOf(block);
        ASSERT_EQ(chunk->size_class, size_class);
        ASSERT_EQ(chunk->thread.load(), &thread);
        if (chunk->Put(block)) lists.Told(chunk);
      }
      lists.EndCycle();
      lists.Age(64, false);
    }
    EXPECT_EQ(lists.count(), wanted ? 10 : 30);
    EXPECT_EQ(chunks.released, 0);
    lists.Age(0, true);
    EXPECT_EQ(chunks.released, wanted ? 10 : 30);
  }
}

}  // namespace
}  // namespace tidepool
