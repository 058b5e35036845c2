// Writes to buffers that something may have kept, in their order, and found by buffer.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_WRITE_LOG_H_
#define TIDEPOOL_NDARRAY_GRADIENT_WRITE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/ndarray/gradient/places.h"

namespace tidepool {

class WriteLog {
 public:
  // Of writes to memory that other buffers may have too (imports), `where` is by addresses.
  static constexpr uint64_t kSharedMemory = 0;

  struct Write {
    uint64_t buffer_id;  // or kSharedMemory
    uint32_t version;    // of the buffer, by it
    Places where;        // of the buffer
    const char* op;
    std::shared_ptr<const AllocationTrace> site;  // null unless MemoryTracing was on
    bool in_backward = false;
    size_t before = kNone;  // the one before it whose buffer has the same hash

    // "Op [add] (called at f.cc:3) in Backward()".
    std::string Text() const;
    // Than a version of its buffer. The numbers go round.
    bool IsLaterThan(uint32_t other) const { return static_cast<int32_t>(version - other) > 0; }
  };

  size_t size() const { return writes_.size(); }
  const Write& operator[](size_t number) const { return writes_[number]; }
  // So that so many more take no memory.
  void Reserve(size_t more) {
    if (room_ < more) [[unlikely]]
      Grow(more);
  }
  void Add(Write write) {
    Reserve(1);
    size_t& last = last_[Hash(write.buffer_id)];
    write.before = std::exchange(last, writes_.size());
    writes_.push_back(std::move(write));
    --room_;
  }
  // Calls visit(number, write) for those to the buffer, the latest first, as long as it returns true.
  template <typename Visit>
  void VisitBackwards(uint64_t buffer_id, const Visit& visit) const {
    if (writes_.empty()) return;
    for (size_t w = last_[Hash(buffer_id)]; w != kNone; w = writes_[w].before) {
      if (writes_[w].buffer_id == buffer_id && !visit(w, writes_[w])) return;
    }
  }
  // Keeps the memory.
  void Clear();

 private:
  static constexpr size_t kNone = SIZE_MAX;
  size_t Hash(uint64_t id) const {
    return static_cast<size_t>((id * 0x9E3779B97F4A7C15u) >> 32) & (last_.size() - 1);
  }
  void Grow(size_t more);

  std::vector<Write> writes_;
  size_t room_ = 0;           // for so many more
  std::vector<size_t> last_;  // by hash of the buffer, in writes_; of a power of two
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_WRITE_LOG_H_
