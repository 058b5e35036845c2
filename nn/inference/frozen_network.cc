#include "tidepool/nn/inference/frozen_network.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/engine_fork.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/threads.h"
#include "tidepool/ndarray/view_overlap.h"
#include "tidepool/nn/inference/check_graph.h"
#include "tidepool/nn/inference/freeze.h"
#include "tidepool/nn/inference/quantise.h"

namespace tidepool::nn {
namespace {

constexpr int kMostThreads = 1024;

Shape WithBatch(int64_t batch, const Shape& shape) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), shape.span().begin(), shape.span().end());
  return Shape(dims);
}

void CheckBatch(int64_t batch) {
  if (batch < 1)
    ThrowInvalidArgument(
        absl::StrCat("frozen network: a batch of ", batch, ", expected at least 1"));
}

void CheckOptions(const FrozenOptions& options) {
  if (options.batches.empty())
    ThrowInvalidArgument("frozen network: batches is empty, expected a size at least");
  for (const int64_t batch : options.batches) CheckBatch(batch);
  if (options.threads < 1 || options.threads > kMostThreads) {
    ThrowInvalidArgument(absl::StrCat("frozen network: threads is ", options.threads,
                                      ", expected 1 to ", kMostThreads));
  }
}

}  // namespace

// Runtimes by size, leased to one piece of a call each.
class FrozenNetwork::Runtimes {
  using Mutex = EngineMutex<EngineLock::kFrozenNetworks>;

 public:
  struct One {
    int64_t batch = 0;
    NDArray x, z;                            // staging
    std::unique_ptr<FrozenRuntime> runtime;  // destroyed before them
  };

  Runtimes(FrozenGraph its_graph, FrozenEngine& its_engine, int its_threads)
      : graph(std::move(its_graph)), engine(its_engine), threads(its_threads) {
    int64_t bytes = 0;
    for (const FrozenOp& op : graph.ops) bytes += op.constant_bytes();
    weights_ = MemoryCharge(MemoryKind::kAllocated, bytes);
    registration_ = Reclaimer::Global().Register(
        "frozen network", [this](ReclaimDepth depth) { return Reclaim(depth); });
  }
  ~Runtimes() {
    registration_.Reset();
    idle_.clear();
    engine.Reclaim([] {});
  }

  void Prepare(int64_t batch, int64_t runtimes) {
    std::vector<int64_t> larger = batches;
    const auto at = std::lower_bound(larger.begin(), larger.end(), batch, std::greater<>());
    if (at == larger.end() || *at != batch) larger.insert(at, batch);
    std::vector<One> made;
    {
      std::lock_guard<Mutex> lock(mutex_);
      for (const One& one : idle_) runtimes -= one.batch == batch;
    }
    try {
      for (; runtimes > 0; --runtimes) {
        made.reserve(made.size() + 1);
        made.push_back(Make(batch));
      }
      std::lock_guard<Mutex> lock(mutex_);
      idle_.reserve(idle_.size() + made.size() + static_cast<size_t>(running_));
      for (One& one : made) idle_.push_back(std::move(one));
      batches = std::move(larger);
    } catch (...) {
      std::lock_guard<Mutex> lock(mutex_);
      for (const One& one : made) CountLocked(one, -1);
      throw;
    }
  }

  // One runtime for the time of a piece.
  class Lease {
   public:
    Lease(Runtimes& of, int64_t batch) : of_(of) {
      {
        std::lock_guard<Mutex> lock(of_.mutex_);
        // Giving back takes no memory.
        of_.idle_.reserve(of_.idle_.size() + static_cast<size_t>(of_.running_) + 1);
        ++of_.running_;
        const auto found = std::find_if(of_.idle_.rbegin(), of_.idle_.rend(),
                                        [&](const One& one) { return one.batch == batch; });
        if (found != of_.idle_.rend()) {
          one = std::move(*found);
          of_.idle_.erase(std::next(found).base());
          return;
        }
      }
      try {
        one = of_.Make(batch);
      } catch (...) {
        std::lock_guard<Mutex> lock(of_.mutex_);
        --of_.running_;
        throw;
      }
    }
    ~Lease() {
      std::lock_guard<Mutex> lock(of_.mutex_);
      --of_.running_;
      of_.idle_.push_back(std::move(one));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    One one;

   private:
    Runtimes& of_;
  };

  void Trim() {
    DropIdle(std::unique_lock<Mutex>(mutex_));
    engine.Reclaim([] {});
  }

  Stats stats() const {
    std::lock_guard<Mutex> lock(mutex_);
    Stats stats = stats_;
    stats.idle_runtimes = static_cast<int64_t>(idle_.size());
    stats.weight_bytes = weights_.bytes();
    return stats;
  }

  const FrozenGraph graph;
  FrozenEngine& engine;
  const int threads;
  std::vector<int64_t> batches;  // largest first

 private:
  One Make(int64_t batch) {
    const MemoryOwnerScope owner("frozen network");
    One one{batch, Zeros(WithBatch(batch, graph.input_shape), DType::kFloat32, Place::Heap()),
            Zeros(WithBatch(batch, graph.output_shape()), DType::kFloat32, Place::Heap()), nullptr};
    one.runtime = engine.Make(graph, batch, one.x.data<float>(), one.z.mutable_data<float>());
    std::lock_guard<Mutex> lock(mutex_);
    ++stats_.made_runtimes;
    CountLocked(one, 1);
    return one;
  }
  void CountLocked(const One& one, int64_t sign) {
    stats_.runtimes += sign;
    stats_.runtime_bytes += sign * one.runtime->bytes();
    stats_.shared_bytes =
        stats_.runtimes == 0 ? 0 : std::max(stats_.shared_bytes, one.runtime->shared_bytes());
    stats_.staging_bytes += sign * 4 * (one.x.NumElements() + one.z.NumElements());
  }

  // Destroyed when the caller has let go of the lock. What is leased comes back without taking memory.
  std::vector<One> TakeIdleLocked() {
    std::vector<One> taken;
    taken.reserve(idle_.size());
    for (One& one : idle_) {
      CountLocked(one, -1);
      taken.push_back(std::move(one));
    }
    idle_.clear();
    return taken;
  }
  void DropIdle(std::unique_lock<Mutex> lock) {
    const std::vector<One> dropped = TakeIdleLocked();
    lock.unlock();
  }
  int64_t Reclaim(ReclaimDepth depth) {
    if (depth != ReclaimDepth::kIdle) return 0;
    std::vector<One> dropped;
    return engine.Reclaim([&] {
      std::unique_lock<Mutex> lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock()) return;
      dropped = TakeIdleLocked();
      lock.unlock();
      for (One& one : dropped) one.runtime.reset();
    });
  }

  MemoryCharge weights_;
  mutable Mutex mutex_;
  std::vector<One> idle_;
  int64_t running_ = 0;
  Stats stats_;
  Reclaimer::Registration registration_;
};

namespace {

// A part of a batch: examples [begin, begin + count) by a runtime for `batch` of them.
struct Piece {
  int64_t begin, count, batch;
};

// The same for any number of threads. `batches`: largest first.
std::vector<Piece> PiecesOf(int64_t batch, const std::vector<int64_t>& batches) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int64_t size : batches) {
    for (; batch - begin >= size; begin += size) pieces.push_back({begin, size, size});
  }
  if (begin < batch) pieces.push_back({begin, batch - begin, batches.back()});
  return pieces;
}

// Or -1. Blocks of a fixed size are what the compiler makes vectors of.
int64_t FirstNotFinite(const float* values, int64_t count) {
  constexpr int64_t kBlock = 64;
  const auto is_bad = [](float value) {
    return (std::bit_cast<uint32_t>(value) & 0x7F800000u) == 0x7F800000u;
  };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    uint32_t any = 0;
    if (begin + kBlock <= count) {
      for (int64_t i = 0; i < kBlock; ++i) any |= is_bad(values[begin + i]);
    } else {
      any = 1;
    }
    if (any == 0) continue;
    for (int64_t i = begin; i < std::min(begin + kBlock, count); ++i) {
      if (is_bad(values[i])) return i;
    }
  }
  return -1;
}

}  // namespace

FrozenNetwork::FrozenNetwork(const Network& network, const FrozenOptions& options) {
  CheckOptions(options);
  FrozenEngine& engine = EngineForFreezing();
  const MemoryOwnerScope owner("frozen network");
  FrozenGraph graph = GraphOf(network, options, engine);
  CheckGraph(graph, engine);
  if (options.type == FrozenType::kInt8) graph = QuantisedAs(options, network, std::move(graph));
  Begin(std::move(graph), engine, options);
}
FrozenNetwork::FrozenNetwork(FrozenGraph graph, const FrozenOptions& options) {
  CheckOptions(options);
  FrozenEngine& engine = EngineForFreezing();
  CheckGraph(graph, engine);
  const MemoryOwnerScope owner("frozen network");
  Begin(std::move(graph), engine, options);
}
void FrozenNetwork::Begin(FrozenGraph graph, FrozenEngine& engine, const FrozenOptions& options) {
  runtimes_ = std::make_unique<Runtimes>(std::move(graph), engine, options.threads);
  for (const int64_t batch : options.batches) runtimes_->Prepare(batch, 1);
}
FrozenNetwork::~FrozenNetwork() = default;
FrozenNetwork::FrozenNetwork(FrozenNetwork&& other) noexcept = default;
FrozenNetwork& FrozenNetwork::operator=(FrozenNetwork&& other) noexcept = default;

FrozenNetwork::Runtimes& FrozenNetwork::GetRuntimes() const {
  if (runtimes_ == nullptr) ThrowFailedPrecondition("frozen network: it was moved from");
  return *runtimes_;
}

NDArray FrozenNetwork::Run(const NDArray& x) const {
  const int64_t batch = x.is_defined() && x.rank() > 0 ? x.dim(0) : 0;
  NDArray output(WithBatch(batch, output_shape()), DType::kFloat32,
                 Place::Current().OnDevice(Host()));
  RunInto(x, output);
  return output;
}

void FrozenNetwork::RunInto(const NDArray& x, NDArray& output) const {
  x.CheckAlive("frozen network", "x");
  output.CheckAlive("frozen network", "output");
  const Shape& in = input_shape();
  const int64_t batch = x.rank() > 0 ? x.dim(0) : 0;
  if (x.dtype() != DType::kFloat32 || batch < 1 || x.shape() != WithBatch(batch, in)) {
    ThrowInvalidArgument(absl::StrCat("frozen network: x is ", DTypeName(x.dtype()), " ",
                                      x.shape().ToString(), ", expected f32 [batch] + ",
                                      in.ToString(), " of at least one example"));
  }
  if (output.dtype() != DType::kFloat32 || !(output.shape() == WithBatch(batch, output_shape())) ||
      !output.is_dense() || output.device() != Host()) {
    ThrowInvalidArgument(absl::StrCat(
        "frozen network: the output is ", DTypeName(output.dtype()), " ", output.shape().ToString(),
        output.is_dense() ? "" : " with gaps", " on ", DeviceName(output.device()),
        ", expected a dense f32 ", WithBatch(batch, output_shape()).ToString(), " on the host"));
  }
  if (ViewsOverlap(x, output)) ThrowInvalidArgument("frozen network: x and the output overlap");
  const HandlesOwnScope handles;
  NDArray input = x.To(Host());
  if (!input.is_dense()) input = input.Dup();
  const float* const from = input.data<float>();
  const int64_t in_size = in.NumElements(), out_size = output_shape().NumElements();
  if (const int64_t at = FirstNotFinite(from, input.NumElements()); at >= 0) {
    ThrowInvalidArgument(absl::StrCat("frozen network: x has ", from[at], " at element ",
                                      at % in_size, " of example ", at / in_size,
                                      ", expected finite numbers"));
  }
  float* const to = output.mutable_data<float>();
  const bool has_tail = !input.buffer() || input.buffer()->readable_tail;

  const auto floats = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  const std::vector<Piece> pieces = PiecesOf(batch, batches());
  const auto run = [&](const Piece& piece) {
    Runtimes::Lease lease(GetRuntimes(), piece.batch);
    const float* const source = from + piece.begin * in_size;
    float* const target = to + piece.begin * out_size;
    const size_t behind = floats((batch - piece.begin - piece.count) * in_size);
    if (piece.count == piece.batch && (has_tail || behind >= kReadableTailBytes)) {
      lease.one.runtime->Run(source, target);
      return;
    }
    std::memcpy(lease.one.x.mutable_data<float>(), source, floats(piece.count * in_size));
    lease.one.runtime->Run(lease.one.x.data<float>(), lease.one.z.mutable_data<float>());
    std::memcpy(target, lease.one.z.data<float>(), floats(piece.count * out_size));
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (GetRuntimes().threads == 1 || count == 1) {
    for (const Piece& piece : pieces) run(piece);
    return;
  }
  // No more at once than were asked for, whoever's threads it is.
  const int64_t grain = (count + GetRuntimes().threads - 1) / GetRuntimes().threads;
  ThreadPool* const pool = ThreadPoolScope::Current();
  std::mutex mutex;
  std::exception_ptr first;
  ParallelFor(pool != nullptr ? Threads(*pool) : Threads(GetRuntimes().threads), count, grain,
              kMinParallelWork, [&](int64_t begin, int64_t end) {
                try {
                  for (int64_t i = begin; i < end; ++i) run(pieces[static_cast<size_t>(i)]);
                } catch (...) {
                  std::lock_guard<std::mutex> lock(mutex);
                  if (first == nullptr) first = std::current_exception();
                }
              });
  if (first != nullptr) std::rethrow_exception(first);
}

void FrozenNetwork::Prepare(int64_t batch, int64_t runtimes) {
  CheckBatch(batch);
  if (runtimes < 1) {
    ThrowInvalidArgument(
        absl::StrCat("frozen network: prepare ", runtimes, " runtimes, expected at least 1"));
  }
  GetRuntimes().Prepare(batch, runtimes);
}
void FrozenNetwork::Trim() const { GetRuntimes().Trim(); }
FrozenNetwork::Stats FrozenNetwork::stats() const { return GetRuntimes().stats(); }
const Shape& FrozenNetwork::input_shape() const { return GetRuntimes().graph.input_shape; }
const Shape& FrozenNetwork::output_shape() const { return GetRuntimes().graph.output_shape(); }
const std::vector<int64_t>& FrozenNetwork::batches() const { return GetRuntimes().batches; }
const FrozenGraph& FrozenNetwork::graph() const { return GetRuntimes().graph; }

}  // namespace tidepool::nn
