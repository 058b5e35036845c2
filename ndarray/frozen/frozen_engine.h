// What runs frozen graphs: a library that packs weights once and plans all activations together. The backend that
// has one registers it from a static initialiser (FrozenEngineRegistrar); programs link it with the backend.
#ifndef TIDEPOOL_NDARRAY_FROZEN_FROZEN_ENGINE_H_
#define TIDEPOOL_NDARRAY_FROZEN_FROZEN_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"

namespace tidepool {

// A graph for one size of batch, with its packed weights and the memory of its activations. Threads: one at a time.
class FrozenRuntime {
 public:
  virtual ~FrozenRuntime() = default;

  // That the engine has taken for it alone; they go when it does.
  virtual int64_t bytes() const = 0;
  // Of packed weights that it has in common with every other runtime whose weights are the same; they go with the last.
  virtual int64_t shared_bytes() const { return 0; }
  // z [batch] + output = the graph of x [batch] + input, dense, on the calling thread alone. Behind x kReadableTailBytes
  // can be read (memory/provider/device_provider.h). Takes no memory. Throws kInternal naming the engine.
  virtual void Run(const float* x, float* z) = 0;
};

// Makes runtimes of graphs. Never destroyed; one is linked at most.
class FrozenEngine {
 public:
  virtual ~FrozenEngine() = default;

  virtual const char* name() const = 0;  // for messages
  // Why it does not run on this machine; empty: it does.
  virtual std::string WhyNotHere() const = 0;
  // Why it cannot run this operator, in 16-bit floats where `is_half`; empty: it can.
  virtual std::string WhyNot(const FrozenOp& op, bool is_half) const = 0;
  // Nanoseconds that a call for `batch` takes less than the host's kernels do, estimated from shapes alone; negative: more.
  virtual double GainOf(const FrozenGraph& graph, int64_t batch) const = 0;
  // Packs the weights of `graph`, which outlives the runtime. `x` and `z`: any memory as Run takes it that lives
  // as long. Throws OutOfMemoryError, and kInternal naming the engine. Any thread.
  virtual std::unique_ptr<FrozenRuntime> Make(const FrozenGraph& graph, int64_t batch,
                                              const float* x, float* z) = 0;
  // Calls `drop`, which may destroy runtimes, and gives memory that none uses any more back to the system: how many
  // bytes. Never waits, as the Reclaimer wants it: nothing, and 0, while some thread takes memory of the engine. Any thread.
  virtual int64_t Reclaim(absl::FunctionRef<void()> drop) = 0;
};

// The engine that is linked, or null.
FrozenEngine* LinkedFrozenEngine();

// Makes an engine the linked one: a static variable of the backend's, which is linked alwayslink.
struct FrozenEngineRegistrar {
  // `engine` is never destroyed. Two of them end the program, naming both.
  explicit FrozenEngineRegistrar(FrozenEngine* engine);
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_FROZEN_FROZEN_ENGINE_H_
