// Which of the variables that an execution made are alive.
//
// What a destroyed variable held is not looked at: its memory may be another variable's by now, or
// a thread's stack.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_LIFETIMES_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_LIFETIMES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/testing/explorer/where.h"

namespace tidepool::explorer::internal {

class Lifetimes {
 public:
  struct Lifetime {
    const void* object;
    size_t bytes;
    bool alive;
    Where made, destroyed;
  };

  void Clear() {
    lifetimes_.clear();
    ends_ = 0;
  }

  uint32_t Begin(const void* object, size_t bytes, const Where& made) {
    lifetimes_.push_back({object, bytes, true, made, Where()});
    return static_cast<uint32_t>(lifetimes_.size()) - 1;
  }
  void End(uint32_t id, const Where& destroyed) {
    ++ends_;
    lifetimes_[id].alive = false;
    lifetimes_[id].destroyed = destroyed;
  }

  // `id` as found at `object`, which may be any number if it is not alive.
  bool IsAlive(uint32_t id, const void* object) const {
    return id < lifetimes_.size() && lifetimes_[id].alive && lifetimes_[id].object == object;
  }
  const Where& made(uint32_t id) const { return lifetimes_[id].made; }

  // How often one was made or destroyed.
  size_t changes() const { return lifetimes_.size() + ends_; }
  template <typename F>
  void ForEachAlive(const F& function) const {
    for (const Lifetime& lifetime : lifetimes_) {
      if (lifetime.alive) function(lifetime.object, lifetime.bytes);
    }
  }

  // The last that was at this address; null: none.
  const Lifetime* Find(const void* object) const {
    for (size_t i = lifetimes_.size(); i-- > 0;) {
      if (lifetimes_[i].object == object) return &lifetimes_[i];
    }
    return nullptr;
  }

 private:
  std::vector<Lifetime> lifetimes_;
  size_t ends_ = 0;
};

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_LIFETIMES_H_
