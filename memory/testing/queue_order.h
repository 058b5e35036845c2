// QueueOrder: finds work of a device's queues that uses the same bytes, one of them to write, and of which
// neither comes after the other, whether or not it went well this time.
//
// Work is told when it is queued, with all that it has to wait for; so what it comes after is known, and
// everything else may run beside it. The last kMostKept pieces are kept.
//
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_TESTING_QUEUE_ORDER_H_
#define TIDEPOOL_MEMORY_TESTING_QUEUE_ORDER_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

class QueueOrder {
 public:
  struct Use {
    const std::byte* begin;
    const std::byte* end;
    bool writes = true;
  };
  static constexpr size_t kMostKept = 256;

  // Work of that number, which is one more than the last one's. `after`: numbers that it waits for; 0 and
  // those that are not known any more count for nothing. Returns what it disturbs, in words; empty: nothing.
  std::string Add(uint64_t number, const std::vector<uint64_t>& after,
                  const std::vector<Use>& uses);
  // The host has waited for it: all that is queued from here on comes after it, and what it came after.
  void Done(uint64_t number);
  // Work uses bytes of it, of which nobody has seen that it is done.
  bool IsUsed(const Use& range) const;
  // The bytes have been given back behind all that used them.
  void Release(const Use& range);
  void Clear() { *this = QueueOrder(); }

 private:
  struct Work {
    uint64_t number = 0;           // 0: none
    std::bitset<kMostKept> after;  // places of those it comes after, however far back
    std::vector<Use> uses;
  };
  Work* Find(uint64_t number);
  void Forget(size_t place);

  std::vector<Work> works_{kMostKept};  // by number modulo kMostKept
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_QUEUE_ORDER_H_
