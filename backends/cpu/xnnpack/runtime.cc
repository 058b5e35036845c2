#include "tidepool/backends/cpu/xnnpack/runtime.h"

#include <cpuinfo.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/backends/cpu/xnnpack/shared_pages.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/ndarray/frozen/engine_fork.h"

namespace tidepool::cpu {
namespace {

constexpr size_t kAlignment = 64;
// Smaller blocks are not worth pages of their own.
constexpr size_t kLeastShared = size_t{32} << 10;

// See TakingXnnpackMemory.
thread_local constinit bool is_taking_memory = false;
thread_local constinit XnnpackReserve* reserve = nullptr;
thread_local constinit int64_t bytes_of_thread = 0;  // taken and not given back
std::atomic<int64_t> requests_until_refused{-1};

MemoryOwner& Owner() { return MemoryOwner::Process().Child("xnnpack"); }

PagesOptions PagesOfOwner() {
  PagesOptions options;
  options.owner = &Owner();
  return options;
}

// XNNPACK's memory: blocks of a pool, each with what its release takes in front.
class Allocator {
 public:
  static Allocator& Global() {
    static Allocator* const allocator = [] {
      // The Reclaimer asks for this lock without waiting. In a child the thread that holds it is another one by its number.
      static constinit const EngineForkHandlers handlers{
          [] { Global().mutex_.lock(); }, [] { Global().mutex_.unlock(); },
          [] { new (&Global().mutex_) std::recursive_mutex; }};
      HandleEngineFork(EngineLock::kMemory, &handlers);
      return new Allocator;
    }();
    return *allocator;
  }

  // Recursive: dropping operators while it is held releases their memory.
  std::recursive_mutex& mutex() { return mutex_; }
  int64_t owned_bytes() const { return used_ + unused_ + SharedPages::Global().owned_bytes(); }

  // Aligned: of weights and activations, which are looked at, so that none of the reserve goes for them.
  void* Allocate(size_t bytes, bool aligned = false) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    const TakingXnnpackMemory taking;
    Header header{bytes + kAlignment};
    Allocation block;
    try {
      if (MayTake()) {
        if (XnnpackReserve::WantsPages(header.bytes)) return AllocatePages(header);
        block = pool_.Allocate(header.bytes, kAlignment);
      }
    } catch (const std::bad_alloc&) {
    }
    if (!block) {
      // Without a reserve XNNPACK reports xnn_status_out_of_memory.
      auto* const data = static_cast<std::byte*>(XnnpackReserve::Take(header.bytes, !aligned));
      if (data == nullptr) return nullptr;
      header.token = &reserve;
      std::memcpy(data, &header, sizeof(header));
      return data + kAlignment;
    }
    Report();
    header.token = block.token;
    std::memcpy(block.data, &header, sizeof(header));
    XnnpackReserve::NoteBlock(block.data);
    return block.data + kAlignment;
  }

  void Release(void* data) {
    if (data == nullptr) return;
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    const Header header = HeaderOf(data);
    if (header.token == &reserve) return;
    if (header.token == this) {
      XnnpackReserve::ForgetPages(static_cast<std::byte*>(data) - kAlignment);
      SharedPages::Global().Release(static_cast<std::byte*>(data) - kAlignment);
      XnnpackReserve::Count(-static_cast<int64_t>(SharedPages::InPages(header.bytes)));
      return;
    }
    pool_.Release(header.token, header.bytes, kAlignment);
    Report();
  }

  void* Reallocate(void* data, size_t bytes) {
    void* larger = Allocate(bytes);
    if (larger == nullptr || data == nullptr) return larger;
    std::memcpy(larger, data, std::min(bytes, HeaderOf(data).bytes - kAlignment));
    Release(data);
    return larger;
  }

  void Trim() {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    pool_.Trim();
    Report();
  }

 private:
  struct Header {
    size_t bytes;
    void* token = nullptr;
  };
  static Header HeaderOf(void* data) {
    Header header;
    std::memcpy(&header, static_cast<std::byte*>(data) - kAlignment, sizeof(header));
    return header;
  }

  // Throws std::bad_alloc.
  void* AllocatePages(Header header) {
    std::byte* const block = SharedPages::Global().Allocate(header.bytes);
    if (block == nullptr) throw std::bad_alloc();
    header.token = this;
    std::memcpy(block, &header, sizeof(header));
    try {
      XnnpackReserve::AddPages(block);
    } catch (const std::bad_alloc&) {
      SharedPages::Global().Release(block);
      throw;
    }
    XnnpackReserve::Count(static_cast<int64_t>(SharedPages::InPages(header.bytes)));
    return block + kAlignment;
  }

  static bool MayTake() {
    if (requests_until_refused < 0) return true;
    return requests_until_refused > 0 && requests_until_refused-- > 0;
  }

  void Report() {
    const int64_t used = static_cast<int64_t>(pool_.used_bytes());
    const int64_t unused = static_cast<int64_t>(pool_.owned_bytes()) - used;
    MemoryTracker& tracker = MemoryTracker::Global();
    XnnpackReserve::Count(used - used_);
    if (used != used_) tracker.Add(Host(), MemoryKind::kExternal, used - used_, &Owner());
    if (unused != unused_) {
      tracker.Add(Host(), MemoryKind::kUnreferenced, unused - unused_, &Owner());
    }
    used_ = used;
    unused_ = unused;
  }

  std::recursive_mutex mutex_;
  PagesResource pages_{PagesOfOwner()};
  Pool pool_{pages_, size_t{1} << 20, kAlignment};
  int64_t used_ = 0;
  int64_t unused_ = 0;
};

// What became of the choice.
const char* CorrectKernelChoice() {
  if (std::getenv("TIDEPOOL_XNNPACK_KEEP_UARCH") != nullptr) {
    return "kernel choice left alone (TIDEPOOL_XNNPACK_KEEP_UARCH is set)";
  }
  constexpr const char* kNotNeeded = "kernel choice left alone (the processor is not Zen 2 to 4)";
  const cpuinfo_core* core = cpuinfo_get_core(0);
  if (core == nullptr) return kNotNeeded;
  const uint32_t uarch = static_cast<uint32_t>(core->uarch);
  constexpr uint32_t kZen4 = 0x0020010C;  // cpuinfo's number; its 2022 header does not name it
  if (uarch != cpuinfo_uarch_zen2 && uarch != cpuinfo_uarch_zen3 && uarch != kZen4) {
    return kNotNeeded;
  }
  const_cast<cpuinfo_core*>(core)->uarch = cpuinfo_uarch_zen;
  return "kernel choice corrected (the processor is taken for Zen)";
}

bool ProductIsRight() {
  return MultipliesExactly([](const float* x, const float* weights, const float* bias, float* z) {
    xnn_operator_t op = nullptr;
    xnn_status status = CreateFullyConnected(
        21, 37, 37, weights, bias, -std::numeric_limits<float>::infinity(), /*flags=*/0, &op);
    if (status == xnn_status_success) status = RunFullyConnected(op, 6, x, z);
    if (op != nullptr) xnn_delete_operator(op);
    return status;
  });
}

struct Runtime {
  bool usable = false;
  std::string description;
};

Runtime Initialise() {
  const std::string interface = absl::StrCat("interface of ", XnnpackInterface(), ", ");
  if (!cpuinfo_initialize()) return {false, interface + "not used: cpuinfo_initialize failed"};
  const char* choice = CorrectKernelChoice();
  static const xnn_allocator allocator = {
      &Allocator::Global(),
      [](void* self, size_t bytes) { return static_cast<Allocator*>(self)->Allocate(bytes); },
      [](void* self, void* data, size_t bytes) {
        return static_cast<Allocator*>(self)->Reallocate(data, bytes);
      },
      [](void* self, void* data) { static_cast<Allocator*>(self)->Release(data); },
      [](void* self, size_t alignment, size_t bytes) -> void* {
        return alignment <= kAlignment
                   ? static_cast<Allocator*>(self)->Allocate(bytes, /*aligned=*/true)
                   : nullptr;
      },
      [](void* self, void* data) { static_cast<Allocator*>(self)->Release(data); },
  };
  if (const xnn_status status = xnn_initialize(&allocator); status != xnn_status_success) {
    return {false, absl::StrCat(interface, "not used: xnn_initialize returned status ",
                                static_cast<int>(status))};
  }
  const bool is_right = ProductIsRight();
  Allocator::Global().Trim();
  if (!is_right) {
    return {false, absl::StrCat(interface, choice, ", not used: its first product is wrong")};
  }
  return {true, interface + choice};
}

// Not a static of the function: what another thread was about to make at a fork() would never be made in the child.
constinit std::atomic<const Runtime*> the_runtime = nullptr;
using StartMutex = EngineMutex<EngineLock::kStart>;
StartMutex start_mutex;

const Runtime& TheRuntime() {
  const Runtime* runtime = the_runtime.load(std::memory_order_acquire);
  if (runtime != nullptr) return *runtime;
  const std::lock_guard<StartMutex> lock(start_mutex);
  runtime = the_runtime.load(std::memory_order_relaxed);
  if (runtime == nullptr) {
    SharedPages::Global();
    runtime = new Runtime(Initialise());
    the_runtime.store(runtime, std::memory_order_release);
  }
  return *runtime;
}

}  // namespace

TakingXnnpackMemory::TakingXnnpackMemory() : before_(std::exchange(is_taking_memory, true)) {}
TakingXnnpackMemory::~TakingXnnpackMemory() { is_taking_memory = before_; }
bool IsTakingXnnpackMemory() { return is_taking_memory; }

XnnpackReserve::XnnpackReserve(size_t bytes)
    : block_(new std::byte[bytes + kAlignment]), left_(bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(block_.get());
  next_ = block_.get() + (kAlignment - begin % kAlignment) % kAlignment;
  reserve = this;
}
XnnpackReserve::~XnnpackReserve() { reserve = nullptr; }

void* XnnpackReserve::Take(size_t bytes, bool gives) {
  if (reserve == nullptr) return nullptr;
  reserve->was_needed_ = true;
  if (!gives) return nullptr;
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (whole > reserve->left_) return nullptr;
  reserve->left_ -= whole;
  return std::exchange(reserve->next_, reserve->next_ + whole);
}

void XnnpackReserve::Count(int64_t bytes) {
  bytes_of_thread += bytes;
  if (reserve != nullptr) reserve->taken_bytes_ += bytes;
}

bool XnnpackReserve::WantsPages(size_t bytes) {
  return reserve != nullptr && reserve->is_packing_ && bytes >= kLeastShared;
}

void XnnpackReserve::AddPages(std::byte* block) {
  reserve->pages_.push_back(block);
  NoteBlock(block);
}

void XnnpackReserve::ForgetPages(std::byte* block) {
  if (reserve != nullptr) std::erase(reserve->pages_, block);
}

void XnnpackReserve::NoteBlock(const void* block) {
  if (reserve != nullptr) reserve->last_ = block;
}

int64_t XnnpackReserve::SharePacked(bool has_workspace) {
  is_packing_ = false;
  if (has_workspace && !pages_.empty() && pages_.back() == last_) pages_.pop_back();
  int64_t shared = 0;
  for (std::byte* const block : pages_) {
    shared += static_cast<int64_t>(SharedPages::Global().Share(block));
  }
  taken_bytes_ -= shared;
  return shared;
}

XnnpackBlock::XnnpackBlock(size_t bytes)
    : bytes_(bytes_of_thread), data_(Allocator::Global().Allocate(bytes)) {
  bytes_ = bytes_of_thread - bytes_;
}
XnnpackBlock::~XnnpackBlock() { Allocator::Global().Release(data_); }

void RefuseXnnpackMemoryForTesting(int64_t requests) { requests_until_refused = requests; }

int64_t ReclaimXnnpackMemory(absl::FunctionRef<void()> drop) {
  Allocator& allocator = Allocator::Global();
  std::unique_lock<std::recursive_mutex> allocating(allocator.mutex(), std::try_to_lock);
  if (!allocating.owns_lock()) return 0;
  const int64_t before = allocator.owned_bytes();
  drop();
  allocator.Trim();
  return before - allocator.owned_bytes();
}

void CheckXnnpack(xnn_status status, const char* what) {
  if (status == xnn_status_success) return;
  const std::string message =
      absl::StrCat("Op [", what, "]: XNNPACK returned status ", static_cast<int>(status));
  if (status == xnn_status_out_of_memory) {
    ThrowOutOfMemory({Host(), nullptr, 0, "an operator"}, "XNNPACK", message,
                     MemoryTracker::Global().Snapshot().ToString());
  }
  ThrowInternal(message);
}

bool XnnpackIsUsable() { return TheRuntime().usable; }
bool XnnpackIsWider() {
  static const bool is_wider =
      XnnpackIsUsable() && BestInstructionSet() == InstructionSet::kPortable;
  return is_wider;
}
bool OursAreWidest() { return BestInstructionSet() >= InstructionSet::kAvx512; }
std::string XnnpackDescription() { return TheRuntime().description; }

bool MultipliesExactly(
    absl::FunctionRef<xnn_status(const float*, const float*, const float*, float*)> product) {
  constexpr int kRows = 6, kInputs = 21, kOutputs = 37;  // whole tiles and parts of them
  float x[kRows * kInputs + XNN_EXTRA_BYTES], weights[kOutputs * kInputs], bias[kOutputs];
  float z[kRows * kOutputs] = {};
  const auto value = [](int i) { return static_cast<float>(i * 7 % 11 - 5); };
  for (int i = 0; i < std::size(x); ++i) x[i] = value(i);
  for (int i = 0; i < std::size(weights); ++i) weights[i] = value(3 * i + 1);
  for (int i = 0; i < std::size(bias); ++i) bias[i] = value(5 * i + 2);
  if (product(x, weights, bias, z) != xnn_status_success) return false;
  for (int row = 0; row < kRows; ++row) {
    for (int out = 0; out < kOutputs; ++out) {
      float expected = bias[out];
      for (int i = 0; i < kInputs; ++i) {
        expected += x[row * kInputs + i] * weights[out * kInputs + i];
      }
      if (z[row * kOutputs + out] != expected) return false;
    }
  }
  return true;
}

}  // namespace tidepool::cpu
