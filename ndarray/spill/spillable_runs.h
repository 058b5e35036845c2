// For tests: numbered arrays that an owner has room for a part of, whose contents are checked at each use.
#ifndef TIDEPOOL_NDARRAY_SPILL_SPILLABLE_RUNS_H_
#define TIDEPOOL_NDARRAY_SPILL_SPILLABLE_RUNS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {

class SpillableRun {
 public:
  static constexpr int64_t kElements = 4096, kBytes = 8 * kElements;  // of most

  static SpillFileOptions Options() {
    SpillFileOptions options;
    options.folder = testing::TempDir();
    options.block_bytes = 16384;
    return options;
  }

  // `room`: for so many arrays of kElements. They are made before the first cycle.
  SpillableRun(const std::string& name, int count, size_t room,
               SpillFileOptions options = Options())
      : file(std::move(options)),
        spillables(file, name),
        owner(MemoryOwner::Process().Child(name)) {
    SetRoom(room);
    for (int i = 0; i < count; ++i) Add();
    spillables.EndCycle();
  }
  ~SpillableRun() {
    arrays.clear();
    // What was given up has its place until the device has answered.
    for (int i = 0; i < 5000 && file.stats().used_bytes > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(file.stats().used_bytes, 0);
    EXPECT_EQ(MemoryBudget::Global().Of(owner, Host()).taken_bytes, 0);
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
  }

  void SetRoom(size_t room) {
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), static_cast<int64_t>(room) * kBytes);
  }
  void Add(int64_t elements = kElements) { arrays.push_back(Made(elements)); }
  void Renew(int i) {
    const auto at = static_cast<size_t>(i);
    const int64_t first = firsts_[at];
    arrays[at] = Made(arrays[at].shape().NumElements());
    firsts_.pop_back();
    firsts_[at] = first + 1000000 - first % 1000000 + 7;
    Fill(*arrays[at].Write(), firsts_[at]);
  }
  void Free(int i) {
    arrays.erase(arrays.begin() + i);
    firsts_.erase(firsts_.begin() + i);
  }

  void Use(int i) {
    const auto at = static_cast<size_t>(i);
    {
      const SpillableArray::Pinned pinned = writes ? arrays[at].Write() : arrays[at].Read();
      EXPECT_TRUE(Holds(*pinned, firsts_[at])) << "array " << i;
      if (writes) Fill(*pinned, ++firsts_[at]);
      if (waits) WaitForFile();
    }
    if (waits) WaitForFile();
  }
  // Returns how many arrays were brought; brought_bytes: of how many bytes.
  int64_t Cycle(const std::vector<int>& order) {
    const SpillablesStats before = spillables.stats();
    for (const int i : order) Use(i);
    const SpillablesStats after = spillables.stats();
    spillables.EndCycle();
    brought_bytes = after.returned_bytes - before.returned_bytes;
    return after.returns - before.returns;
  }
  void CheckAll() {
    for (size_t i = 0; i < arrays.size(); ++i)
      EXPECT_TRUE(Holds(*arrays[i].Read(), firsts_[i])) << "array " << i;
  }
  // Until nothing of the file is under way.
  void WaitForFile() const {
    while (file.stats().unfinished > 0) std::this_thread::yield();
  }

  bool writes = false;        // all that is used
  bool waits = false;         // for the file, while each is pinned and after that
  int64_t brought_bytes = 0;  // in the last cycle
  SpillFile file;
  Spillables spillables;
  MemoryOwner& owner;
  std::deque<SpillableArray> arrays;

 private:
  SpillableArray Made(int64_t elements) {
    const MemoryOwnerScope scope(owner);
    firsts_.push_back(static_cast<int64_t>(firsts_.size()) * 1000000);
    NDArray array({elements}, DType::kInt64, Place::Heap());
    Fill(array, firsts_.back());
    return SpillableArray(spillables, std::move(array), "of a run");
  }
  static void Fill(NDArray& array, int64_t first) {
    auto* const data = reinterpret_cast<int64_t*>(array.raw_data());
    for (int64_t i = 0; i < array.NumElements(); ++i) data[i] = first + i;
    array.MarkWritten();
  }
  static bool Holds(const NDArray& array, int64_t first) {
    const auto* const data = reinterpret_cast<const int64_t*>(array.raw_data());
    for (int64_t i = 0; i < array.NumElements(); ++i) {
      if (data[i] != first + i) return false;
    }
    return true;
  }

  std::vector<int64_t> firsts_;  // element i of each is so much more than i
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_SPILLABLE_RUNS_H_
