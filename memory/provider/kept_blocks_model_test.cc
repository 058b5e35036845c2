// Kept blocks beside a model that knows of each block what uses it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/provider/kept_blocks.h"
#include "tidepool/memory/provider/kept_blocks_model.h"
#include "tidepool/memory/testing/simulated_device.h"

namespace tidepool {
namespace {

const Device kDevice = SimulatedDevice::kDevice;

// One program of a seed: some queues, of which one or another stands still for long.
class Program {
 public:
  static constexpr size_t kMost = 200'000;
  Program(uint64_t seed, size_t capacity)
      : random_(seed),
        device_(capacity),
        kept_(device_, device_, 256, kMost),
        copies_rarely_(seed % 3 != 0),
        few_sizes_(seed % 2 != 0) {
    queues_.push_back(DeviceQueue::First(kDevice));
    for (size_t i = Below(5); i > 0; --i) queues_.push_back(DeviceQueue::New(kDevice));
  }
  ~Program() {
    for (const auto& [data, of] : live_) kept_.ReleaseMany(&of.block, 1);
    kept_.Trim();
    EXPECT_TRUE(device_.blocks.empty());
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      if (Below(40) == 0)
        standing_ = static_cast<int>(Below(queues_.size() + 1));  // one more: none
      for (const DeviceQueue& queue : queues_) {
        if (queue.number() != standing_)
          device_.Advance(queue.number(), static_cast<int64_t>(Below(4)));
      }
      std::erase_if(copies_, [&](QueuePoint point) {
        if (Below(4) != 0) return false;
        device_.FinishCopy(point);
        return true;
      });
      switch (Below(8)) {
        case 0:
        case 1:
        case 2:
          Allocate();
          break;
        case 3:
        case 4:
          Release(1 + Below(3));
          break;
        case 5:
        case 6:
          Use();
          break;
        default:
          if (Below(20) == 0) Trim();
      }
    }
  }

 private:
  struct Use_ {
    int queue;
    QueuePoint point;
  };
  struct Live {
    DeviceProvider::Block block;
    uint32_t users;
    std::vector<QueuePoint> copies;
  };
  struct Kept {
    size_t bytes;
    std::vector<Use_> uses;
    bool filled = false;
  };

  size_t Below(size_t limit) { return random_() % limit; }
  bool IsUnused(const Kept& kept) {
    return std::all_of(kept.uses.begin(), kept.uses.end(),
                       [&](const Use_& use) { return device_.IsDone(use.point); });
  }
  // Queues have nothing to do with it, or this one alone.
  bool IsInOrder(const Kept& kept, int queue) {
    return std::all_of(kept.uses.begin(), kept.uses.end(), [&](const Use_& use) {
      return use.queue < 0 || use.queue == queue || device_.IsDone(use.point);
    });
  }
  // Waits for copies alone.
  size_t Copied() {
    return static_cast<size_t>(std::count_if(
        kept_blocks_.begin(), kept_blocks_.end(),
        [&](const auto& each) { return IsInOrder(each.second, -1) && !IsUnused(each.second); }));
  }

  void Use() {
    if (live_.empty()) return;
    auto it = live_.begin();
    std::advance(it, Below(live_.size()));
    Live& live = it->second;
    if (Below(3 + 20 * static_cast<size_t>(copies_rarely_)) == 0) {
      const QueuePoint point = device_.QueueCopy();
      kept_.NoteCopy(live.block.data, point);
      live.copies.push_back(point);
      copies_.push_back(point);
    } else {
      const int queue = queues_[Below(queues_.size())].number();
      device_.QueueWork(queue);
      live.users |= 1u << queue;
    }
  }

  void Allocate() {
    static constexpr size_t kSizes[] = {20'000, 21'000, 4'000, 4'300, 9'000, 50'000};
    const size_t bytes = kSizes[Below(few_sizes_ ? 2 : std::size(kSizes))];
    const size_t whole = (bytes + kReadableTailBytes + 511) / 512 * 512;
    const DeviceQueue& here = queues_[Below(queues_.size())];
    const int queue = here.number();
    // What there is before.
    bool has_unused = false, has_in_order = false, has_filled = false;
    for (const auto& [data, kept] : kept_blocks_) {
      if (kept.bytes < whole || kept.bytes > whole + whole / 8) continue;
      has_unused |= IsUnused(kept);
      has_in_order |= IsInOrder(kept, queue);
      has_filled |= kept.filled;
    }
    const bool few_copied = Copied() < size_t{kMostQueues};
    const int64_t waits = device_.waits;
    std::byte* data;
    Counted([&] {
      const QueueScope scope(here);
      data = kept_.Allocate(bytes, 256);
    });
    if (data == nullptr) {
      EXPECT_FALSE(has_unused);
      ForgetGiven();
      return;
    }
    const auto it = kept_blocks_.find(data);
    if (few_copied && has_unused) {
      ASSERT_NE(it, kept_blocks_.end()) << "a fresh block beside an unused one";
      EXPECT_TRUE(IsUnused(it->second)) << "a used block beside an unused one";
      EXPECT_EQ(device_.waits, waits);
    }
    if (it != kept_blocks_.end()) {
      if (few_copied && has_in_order && !has_filled) {
        EXPECT_TRUE(IsInOrder(it->second, queue))
            << "a stranger's block beside one of its own queue's";
      }
      for (const Use_& use : it->second.uses) {
        EXPECT_TRUE(device_.IsBehind(queue, use.point)) << "used again unordered";
      }
      kept_blocks_.erase(it);
    }
    live_[data] = {{data, bytes}, 0, {}};
    filled_[data] = Below(4) == 0;
    if (filled_[data]) kept_.EarlierUses(data);  // as a copy that is the first to use it
    ForgetGiven();
    ExpectNothingBeyond(few_copied);
  }

  void Release(size_t count) {
    std::vector<DeviceProvider::Block> blocks;
    const bool few_copied = Copied() + count < size_t{kMostQueues};
    std::map<std::byte*, Live> released;
    for (; count > 0 && !live_.empty(); --count) {
      auto it = live_.begin();
      std::advance(it, Below(live_.size()));
      blocks.push_back(it->second.block);
      if (it->second.users == 0) it->second.users = 1u << queues_.back().number();
      kept_.NoteUsers(it->first, it->second.users);
      released.insert(live_.extract(it));
    }
    for (const auto& [data, live] : released) {
      Kept kept{device_.blocks[data], {}, filled_[data]};
      for (const QueuePoint point : live.copies) kept.uses.push_back({-1, point});
      for (const DeviceQueue& queue : queues_) {
        if ((live.users >> queue.number() & 1) == 0) continue;
        kept.uses.push_back({queue.number(), device_.ComputePoint(queue.number())});
      }
      kept_blocks_[data] = std::move(kept);
    }
    Counted([&] { kept_.ReleaseMany(blocks.data(), static_cast<int>(blocks.size())); });
    ForgetGiven();
    ExpectNothingBeyond(few_copied);
  }

  void Trim() {
    if (Below(2) == 0) {
      Counted([&] { kept_.TrimUnused(); });
      const bool few_copied = Copied() < size_t{kMostQueues};
      ForgetGiven();
      for (const auto& [data, kept] : kept_blocks_) EXPECT_TRUE(!few_copied || !IsUnused(kept));
    } else {
      kept_.Trim();
      ForgetGiven();
      EXPECT_TRUE(kept_blocks_.empty());
    }
  }

  // A call asks for each point that has passed once, and for one of each queue and so many copies
  // in vain.
  template <typename Call>
  void Counted(const Call& call) {
    const int64_t asked = device_.asked, waits = device_.waits;
    const size_t passed = device_.passed.size();
    call();
    const int64_t in_vain =
        device_.asked - asked - static_cast<int64_t>(device_.passed.size() - passed);
    // Once when a block is picked, and where none is, in front of each that the source is asked
    // for.
    const int64_t looks = device_.waits == waits ? 3 : INT64_MAX / 100;
    EXPECT_LE(in_vain, looks * static_cast<int64_t>(queues_.size() + size_t{kMostQueues}))
        << "points asked for";
  }

  void ForgetGiven() {
    for (std::byte* data : device_.given) {
      const auto it = kept_blocks_.find(data);
      ASSERT_NE(it, kept_blocks_.end());
      EXPECT_TRUE(IsUnused(it->second)) << "given back under work";
      kept_blocks_.erase(it);
    }
    device_.given.clear();
  }

  void ExpectNothingBeyond(bool few_copied) {
    size_t bytes = 0;
    for (const auto& [data, kept] : kept_blocks_) bytes += kept.bytes;
    EXPECT_EQ(kept_.stats().kept_bytes, bytes);
    EXPECT_EQ(kept_.stats().kept_blocks, kept_blocks_.size());
    EXPECT_EQ(kept_.stats().live_blocks, live_.size());
    if (bytes <= kMost || !few_copied) return;
    for (const auto& [data, kept] : kept_blocks_)
      EXPECT_FALSE(IsUnused(kept)) << "kept above what may be, unused";
  }

  std::mt19937_64 random_;
  ModelDevice device_;
  KeptBlocks kept_;
  const bool copies_rarely_, few_sizes_;
  std::vector<DeviceQueue> queues_;
  int standing_ = kMostQueues;
  std::map<std::byte*, Live> live_;
  std::map<std::byte*, Kept> kept_blocks_;
  std::map<std::byte*, bool> filled_;
  std::vector<QueuePoint> copies_;  // under way
};

TEST(KeptBlocksModel, IsAsTheModelSays) {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    Program program(seed, seed % 4 == 0 ? 400'000 : SIZE_MAX / 2);
    program.Run(400);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tidepool
