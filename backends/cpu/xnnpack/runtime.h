// XNNPACK, set up once: its kernel choice put right, its memory in our ledger.
//
// XNNPACK (Debian's of 2022 and of 2024) knows no Zen 2 and later and takes a 5x16 micro-kernel that
// gcc compiles with a spilled accumulator: a third of the speed of the 4x16s4 one it takes on Zen.
// Before it starts we tell cpuinfo that such processors are Zen. TIDEPOOL_XNNPACK_KEEP_UARCH=1 in the
// environment leaves the choice alone. As that reaches into another library, a small product is
// computed before anything else runs on XNNPACK; if it is wrong, nothing does.
//
// Memory XNNPACK asks for (packed weights, operator state) comes from a retained pool and counts
// as kExternal; the pool's unused part as kUnreferenced.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_

#include <xnnpack.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/accounting/reclaimer.h"

namespace tidepool::cpu {

// True when XNNPACK runs here; the first call sets it up. Any thread.
bool XnnpackIsUsable();

// One line: the interface, what became of the kernel choice, why XNNPACK does not run if it does
// not. Sets XNNPACK up.
std::string XnnpackDescription();

// Multiplies small integers with `product` (x [6, 21], weights [37, 21], bias [37] -> z [6, 37]) and
// says whether the result is exact. What the check at the start does; here for its test.
bool MultipliesExactly(absl::FunctionRef<xnn_status(const float* x, const float* weights,
                                                    const float* bias, float* z)> product);

// Operators kept between calls, with their packed weights, by everything they depend on.
class XnnpackOperators {
 public:
  static XnnpackOperators& Global();

  // What an operator was made from. Weights are known by the id and version of their buffers and
  // where in it they start, so a write to them makes a new operator and drops the old one.
  struct Key {
    uint64_t kind = 0;  // 1 fully connected, 2 convolution, 3 max pooling, 4 softmax
    uint64_t filter_id = 0, filter_data = 0, bias_id = 0, bias_data = 0;
    uint64_t filter_version = 0, bias_version = 0;
    int64_t sizes[16] = {};
  };

  // Runs `use` with the operator of `key`, made by `create` if it is not there; one call at a time
  // per operator. Throws kInternal or OutOfMemoryError naming `what` and XNNPACK's status.
  void With(const Key& key, const char* what,
            absl::FunctionRef<xnn_status(xnn_operator_t*)> create,
            absl::FunctionRef<xnn_status(xnn_operator_t)> use);

  // The answer of `find` for weights that are known by buffer and version, kept until they change.
  bool Remember(const std::array<uint64_t, 7>& weights, absl::FunctionRef<bool()> find);

  // Drops all operators and gives unused memory back.
  void Clear();
  // The Reclaimer's callback: spare memory; at kIdle also operators that are not running.
  int64_t Reclaim(ReclaimDepth depth);
  size_t size() const;

 private:
  struct Entry {
    ~Entry();
    Key key;
    xnn_operator_t op = nullptr;
    std::mutex running;
    uint64_t last_use = 0;
  };
  std::shared_ptr<Entry> FindOrCreate(const Key& key, const char* what,
                                      absl::FunctionRef<xnn_status(xnn_operator_t*)> create);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
  std::vector<std::pair<std::array<uint64_t, 7>, bool>> answers_;
  size_t next_answer_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_RUNTIME_H_
