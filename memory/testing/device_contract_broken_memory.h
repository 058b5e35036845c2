// Devices that break one promise of DeviceProvider each, always or one time in ten: of descriptions and memory.
#ifndef TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_MEMORY_H_
#define TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/device_contract_faults.h"

namespace tidepool {

// Where a fault happens: always, or at one call in ten.
class Sometimes {
 public:
  explicit Sometimes(bool always) : always_(always) {}
  bool operator()() {
    std::lock_guard<std::mutex> lock(mutex_);
    return always_ || random_() % 10 == 0;
  }

 private:
  const bool always_;
  std::mutex mutex_;
  std::mt19937_64 random_{7};
};

inline std::byte* BytesOf(const std::byte* at, size_t bytes) {
  return Wrapper::base().Hidden(at, bytes);
}

// A wrapper with one fault.
struct Faulty : Wrapper {
  explicit Faulty(bool always) : now(always) {}
  virtual ~Faulty() = default;
  virtual void Finish() {}  // what the fault kept
  Sometimes now;
};

struct TraitsChange : Faulty {
  using Faulty::Faulty;
  MemoryTraits traits() const override {
    MemoryTraits traits = Wrapper::traits();
    if (const_cast<TraitsChange*>(this)->now()) traits.reserve_bytes += 1 + calls++;
    return traits;
  }
  mutable size_t calls = 0;
};
struct SaysItIsLost : Faulty {
  using Faulty::Faulty;
  void ThrowIfLost(const std::string& who) override { ThrowInternal(who); }
};
struct CommitCountsRefusals : Faulty {
  using Faulty::Faulty;
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    if (refused > kCapacity / 4) return false;
    const bool committed = Wrapper::Commit(at, bytes, large);
    if (!committed) refused += bytes;
    return committed;
  }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return refused > kCapacity / 4 ? nullptr : Wrapper::Allocate(bytes, alignment);
  }
  size_t refused = 0;
};
// The granule before it.
struct CommitLosesNeighbours : Faulty {
  using Faulty::Faulty;
  std::byte* Reserve(size_t bytes) noexcept override { return range = Wrapper::Reserve(bytes); }
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    if (!Wrapper::Commit(at, bytes, large)) return false;
    if (at > range && now()) std::memset(BytesOf(at - 1, 1), 0, 1);
    return true;
  }
  std::byte* range = nullptr;
};
struct DecommitLosesBytesWhenRefused : Faulty {
  using Faulty::Faulty;
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    if (now()) base().Fill(at, std::byte{0}, bytes);
    return false;
  }
};
struct PrefaultWrites : Faulty {
  using Faulty::Faulty;
  void Prefault(std::byte* at, size_t bytes) noexcept override {
    if (now()) std::memset(BytesOf(at, bytes), 0, 1);
  }
};
struct BlocksInARange : Faulty {
  using Faulty::Faulty;
  std::byte* Reserve(size_t bytes) noexcept override {
    return inside != nullptr && bytes >= Wrapper::traits().reserve_bytes && now()
               ? inside - (reinterpret_cast<uintptr_t>(inside) % kMaxAlignment)
               : Wrapper::Reserve(bytes);
  }
  void Unreserve(std::byte* at, size_t bytes) noexcept override {
    if (inside == nullptr || at != inside - (reinterpret_cast<uintptr_t>(inside) % kMaxAlignment))
      Wrapper::Unreserve(at, bytes);
  }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    std::byte* const data = Wrapper::Allocate(bytes, alignment);
    if (bytes == 100) inside = data;
    return data;
  }
  std::byte* inside = nullptr;
};
struct UnalignedBlocks : Faulty {
  using Faulty::Faulty;
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    if (bytes > SIZE_MAX / 16) return nullptr;
    std::byte* const data = Wrapper::Allocate(bytes + 16, alignment);
    if (data == nullptr || !now()) return data != nullptr ? (shift[data] = 0, data) : nullptr;
    shift[data + 16] = 16;
    return data + 16;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    Wrapper::Release(data - shift[data], bytes + 16);
    shift.erase(data);
  }
  std::map<std::byte*, size_t> shift;
};
struct ReleaseWritesBeside : Faulty {
  using Faulty::Faulty;
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    std::byte* const data = Wrapper::Allocate(bytes, alignment);
    if (data != nullptr) live[data] = bytes;
    return data;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    live.erase(data);
    const auto next = live.upper_bound(data);
    if (next != live.end() && now()) std::memset(BytesOf(next->first, 1), 0, 1);
    Wrapper::Release(data, bytes);
  }
  std::map<std::byte*, size_t> live;
};
struct UnreserveKeepsMemory : Faulty {
  using Faulty::Faulty;
  void Unreserve(std::byte* at, size_t bytes) noexcept override {
    if (now()) return kept.push_back({at, bytes});
    Wrapper::Unreserve(at, bytes);
  }
  void Finish() override {
    for (const Block& range : kept) Wrapper::Unreserve(range.data, range.bytes);
  }
  std::vector<Block> kept;
};
struct DecommitKeepsMemory : Faulty {
  using Faulty::Faulty;
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    const auto kept_here = kept.find(at);
    if (kept_here == kept.end() || kept_here->second != bytes)
      return Wrapper::Commit(at, bytes, large);
    kept.erase(kept_here);
    return true;
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    if (!now()) return Wrapper::Decommit(at, bytes);
    kept[at] = bytes;
    return true;
  }
  void Unreserve(std::byte* at, size_t bytes) noexcept override {
    kept.erase(kept.lower_bound(at), kept.lower_bound(at + bytes));
    Wrapper::Unreserve(at, bytes);
  }
  std::map<std::byte*, size_t> kept;
};
struct ReleaseManyKeepsOne : Faulty {
  using Faulty::Faulty;
  void ReleaseMany(const Block* blocks, int count) noexcept override {
    for (int i = 0; i < count; ++i) {
      if (count > 1 && i == 0 && now()) {
        kept.push_back(blocks[i]);
      } else {
        Wrapper::Release(blocks[i].data, blocks[i].bytes);
      }
    }
  }
  void Finish() override {
    for (const Block& block : kept) Wrapper::Release(block.data, block.bytes);
  }
  std::vector<Block> kept;
};

// ---- memory that is handed out anew too early ----

struct ReusesEarly : Faulty {
  ReusesEarly(bool always, bool many) : Faulty(always), of_many(many) {}
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    const auto fits = std::find_if(kept.begin(), kept.end(),
                                   [&](const Block& block) { return block.bytes == bytes; });
    if (fits == kept.end() || alignment > SimulatedDevice::kAlignment)
      return Wrapper::Allocate(bytes, alignment);
    std::byte* const data = fits->data;
    kept.erase(fits);
    return data;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    if (!of_many && now()) return kept.push_back({data, bytes});
    Wrapper::Release(data, bytes);
  }
  void ReleaseMany(const Block* blocks, int count) noexcept override {
    for (int i = 0; i < count; ++i) {
      if (of_many && now()) {
        kept.push_back(blocks[i]);
      } else {
        Wrapper::Release(blocks[i].data, blocks[i].bytes);
      }
    }
  }
  void Finish() override {
    for (const Block& block : kept) Wrapper::Release(block.data, block.bytes);
  }
  const bool of_many;
  std::vector<Block> kept;
};
struct ReleaseIsEarly : ReusesEarly {
  explicit ReleaseIsEarly(bool always) : ReusesEarly(always, false) {}
};
struct ReleaseManyIsEarly : ReusesEarly {
  explicit ReleaseManyIsEarly(bool always) : ReusesEarly(always, true) {}
};
// The same memory behind the same addresses.
struct DecommitIsEarly : DecommitKeepsMemory {
  using DecommitKeepsMemory::DecommitKeepsMemory;
};
struct UnreserveIsEarly : Faulty {
  using Faulty::Faulty;
  std::byte* Reserve(size_t bytes) noexcept override {
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].bytes != bytes) continue;
      std::byte* const at = kept[i].data;
      kept.erase(kept.begin() + static_cast<ptrdiff_t>(i));
      return at;
    }
    return Wrapper::Reserve(bytes);
  }
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    if (committed[at] == bytes) return true;
    const bool done = Wrapper::Commit(at, bytes, large);
    if (done) committed[at] = bytes;
    return done;
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    committed.erase(at);
    return Wrapper::Decommit(at, bytes);
  }
  void Unreserve(std::byte* at, size_t bytes) noexcept override {
    if (committed[at] == bytes && now()) return kept.push_back({at, bytes});
    committed.erase(committed.lower_bound(at), committed.lower_bound(at + bytes));
    Wrapper::Unreserve(at, bytes);
  }
  void Finish() override {
    for (const Block& range : kept) Wrapper::Unreserve(range.data, range.bytes);
  }
  std::vector<Block> kept;
  std::map<std::byte*, size_t> committed;
};
// Of a device that keeps blocks.
struct NoEarlierUses : Faulty {
  explicit NoEarlierUses(bool always) : Faulty(always) { base().set_keeps_blocks(kCapacity / 2); }
  QueuePoint EarlierUses(const std::byte* data, size_t bytes) override {
    const QueuePoint point = Wrapper::EarlierUses(data, bytes);
    return now() ? QueuePoint{} : point;
  }
  void ReleaseMany(const Block* blocks, int count) noexcept override {
    base().ReleaseMany(blocks, count);
  }
};
struct NotesNoUsers : NoEarlierUses {
  using NoEarlierUses::NoEarlierUses;
  QueuePoint EarlierUses(const std::byte* data, size_t bytes) override {
    return Wrapper::EarlierUses(data, bytes);
  }
  bool NoteUsers(const std::byte* data, uint32_t queues) noexcept override {
    return now() ? true : Wrapper::NoteUsers(data, queues);
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_MEMORY_H_
