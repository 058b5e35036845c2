// XNNPACK's operators kept between calls, with their packed weights.
//
// An operator serves one call at a time. Calls at the same time have one each, made when they are first needed and kept for the
// next: nobody waits for another's work, and no lock is held while one runs. What was packed of weights goes with them where
// their owner says so (kept_operands.h), what has not been used for a minute when something new is packed, and the
// Reclaimer takes all that is not running.
//
// Threads: any.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATOR_CACHE_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATOR_CACHE_H_

#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/ndarray/frozen/engine_fork.h"

namespace tidepool::cpu {

class XnnpackOperators {
 public:
  static XnnpackOperators& Global();

  static constexpr int64_t kKeptSeconds = 60;

  // Weights are known by the ids of their buffers and where in those they start; a write to them, which raises
  // a version, makes new operators and drops the old ones.
  struct Weights {
    uint64_t filter_id = 0, filter_data = 0, bias_id = 0, bias_data = 0;
  };
  struct Versions {
    uint64_t filter = 0, bias = 0;
    friend bool operator==(const Versions&, const Versions&) = default;
  };
  // What an operator is made from.
  struct Key {
    uint64_t kind = 0;  // 1 fully connected, 2 convolution, 4 softmax; 0: an answer about weights
    Weights weights;
    int64_t sizes[16] = {};
  };

  // Runs `use` with an operator of `key`, made by `create` if none is free. Throws kInternal or OutOfMemoryError
  // naming `what` and XNNPACK's status.
  void With(const Key& key, const Versions& versions, const char* what,
            absl::FunctionRef<xnn_status(xnn_operator_t*)> create,
            absl::FunctionRef<xnn_status(xnn_operator_t)> use);

  // The answer of `find` for weights of `elements`, kept until they change.
  bool Remember(const Weights& weights, const Versions& versions, int64_t elements,
                absl::FunctionRef<bool()> find);

  // Drops what was made of the buffer of that id; operators that run go when they are done.
  void Forget(uint64_t buffer_id) noexcept;
  // Drops all operators that are not running, and gives unused memory back.
  void Clear();
  // The Reclaimer's callback: spare memory; at kIdle also operators that are not running.
  int64_t Reclaim(ReclaimDepth depth);

  size_t size() const;     // operators, running ones too
  size_t answers() const;  // that are remembered
  // Seconds of a clock; null: the system's.
  void SetClockForTesting(int64_t (*clock)());

 private:
  struct Entry;
  class Lease;
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  struct Same {
    bool operator()(const Key& a, const Key& b) const;
  };

  int64_t NowLocked() const;
  std::shared_ptr<Entry> FindLocked(const Key& key, const Versions& versions);
  void DropOldLocked();
  template <typename Is>
  void DropLocked(const Is& is);

  mutable EngineMutex<EngineLock::kOperators> mutex_;
  std::unordered_map<Key, std::shared_ptr<Entry>, Hash, Same> entries_;
  int64_t (*clock_)() = nullptr;
  int64_t looked_at_ = 0;  // for what is old, last; seconds
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_OPERATOR_CACHE_H_
