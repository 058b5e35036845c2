// Blocks of alignments beyond 64 beside small ones, in cycles that come and go: each is aligned, lies
// in no other, keeps its bytes, and is known when it is released.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

struct Request {
  size_t bytes, alignment = 8;
};

// A workspace, and what is known of its blocks.
class Blocks {
 public:
  ~Blocks() { ReleaseAllBut(0); }
  void Allocate(const Request& request) {
    oracle_.Add(AllocateBytes(workspace_, request.bytes, request.alignment), request.bytes,
                request.alignment);
  }
  void Release(size_t i) {
    const OutBlock block = oracle_.Remove(i);
    ReleaseBytes(block.data, block.bytes, block.alignment);
  }
  void ReleaseAllBut(size_t kept) {
    while (oracle_.size() > kept) Release(oracle_.size() - 1);
  }
  // All of these alive at once.
  void Cycle(std::initializer_list<Request> requests) {
    WorkspaceScope scope(workspace_);
    for (const Request& request : requests) Allocate(request);
    ReleaseAllBut(0);
  }
  size_t size() const { return oracle_.size(); }
  Workspace& workspace() { return workspace_; }

 private:
  Workspace workspace_{"aligned"};
  BlockOracle oracle_;
};

// The third block of the last cycle ended the program when it was released: its chunk was cut behind
// the large block, which had been served from where the first chunk is.
TEST(BlockAlignmentTest, BlocksOfAnyAlignmentBesideSmallOnesAreKnown) {
  for (const Request& large :
       {Request{24, 128}, Request{24, 256}, Request{24, 512}, Request{24, 1024}, Request{24, 2048},
        Request{2000, 1024}, Request{54, 4096}, Request{49, 4096}, Request{44, 8192}}) {
    SCOPED_TRACE(testing::Message() << large.bytes << " bytes at " << large.alignment);
    Blocks blocks;
    blocks.Cycle({{1081}});
    for (int cycle = 0; cycle < 64; ++cycle) blocks.Cycle({});
    blocks.Cycle({large});
    for (int cycle = 0; cycle < 2; ++cycle) blocks.Cycle({});
    blocks.Cycle({large});
    for (int cycle = 0; cycle < 4; ++cycle) blocks.Cycle({{57}, large, {21}});
  }
}

// Kinds of cycles that come once, some times or often, of few blocks.
TEST(BlockAlignmentTest, CyclesThatComeAndGoKeepTheirBlocks) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Blocks blocks;
    for (int phase = 0; phase < 40; ++phase) {
      const size_t times = random() % 2 == 0 ? 1 + random() % 5 : 1 + random() % 150;
      const uint32_t kind = random();
      const size_t count = random() % 8, sizes = random() % 4, kept = seed % 3 == 0 ? 1 : 0;
      for (size_t time = 0; time < times; ++time) {
        WorkspaceScope scope(blocks.workspace());
        std::mt19937 draw(kind);
        for (size_t i = 0; i < count; ++i) {
          const size_t alignment = size_t{1} << draw() % 14;
          switch (sizes < 3 ? sizes : draw() % 3) {
            case 0:
              blocks.Allocate({draw() % 60, draw() % 2 == 0 ? alignment : 8});
              break;
            case 1:
              blocks.Allocate({draw() % 4200, alignment});
              break;
            default:
              blocks.Allocate({4097 + (draw() % 1000 << draw() % 10), alignment});
          }
          if (HasFatalFailure()) return;
          if (draw() % 3 == 0) blocks.Release(draw() % blocks.size());
        }
        blocks.ReleaseAllBut(kept);
      }
      if (random() % 6 == 0) blocks.workspace().Trim();
      if (random() % 20 == 0) Reclaimer::Global().RunNow();
    }
    blocks.ReleaseAllBut(0);
    blocks.workspace().Trim();
    EXPECT_EQ(blocks.workspace().stats().block_bytes, 0u);
  }
}

}  // namespace
}  // namespace tidepool
