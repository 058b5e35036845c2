#include "tidepool/backends/cpu/xnnpack/runtime.h"

#include <cpuinfo.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/resource/pages_resource.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool::cpu {
namespace {

// Networks with more layers than this pack some weights again in each pass.
constexpr size_t kMaxOperators = 256;
constexpr size_t kAlignment = 64;

// Set while this thread holds the locks below and may ask for memory: the Reclaimer, asked in turn,
// must leave them alone.
thread_local constinit bool is_taking_memory = false;

class TakingMemory {
 public:
  TakingMemory() : before_(std::exchange(is_taking_memory, true)) {}
  ~TakingMemory() { is_taking_memory = before_; }

 private:
  const bool before_;
};

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
    static Allocator* const allocator = new Allocator;
    return *allocator;
  }

  // Recursive: dropping operators while it is held releases their memory.
  std::recursive_mutex& mutex() { return mutex_; }
  int64_t owned_bytes() const { return used_ + unused_; }

  void* Allocate(size_t bytes) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    const TakingMemory taking;
    Header header{bytes + kAlignment};
    Allocation block;
    try {
      block = pool_.Allocate(header.bytes, kAlignment);
    } catch (const std::bad_alloc&) {
    }
    if (!block) return nullptr;  // XNNPACK reports xnn_status_out_of_memory
    Report();
    header.token = block.token;
    std::memcpy(block.data, &header, sizeof(header));
    return block.data + kAlignment;
  }

  void Release(void* data) {
    if (data == nullptr) return;
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    const Header header = HeaderOf(data);
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

  void Report() {
    const int64_t used = static_cast<int64_t>(pool_.used_bytes());
    const int64_t unused = static_cast<int64_t>(pool_.owned_bytes()) - used;
    MemoryTracker& tracker = MemoryTracker::Global();
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
        21, 37, weights, bias, -std::numeric_limits<float>::infinity(), /*flags=*/0, &op);
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
        return alignment <= kAlignment ? static_cast<Allocator*>(self)->Allocate(bytes) : nullptr;
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

const Runtime& TheRuntime() {
  static const Runtime* const runtime = new Runtime(Initialise());
  return *runtime;
}

void Check(xnn_status status, const char* what) {
  if (status == xnn_status_success) return;
  const std::string message =
      absl::StrCat("Op [", what, "]: XNNPACK returned status ", static_cast<int>(status));
  if (status == xnn_status_out_of_memory) {
    ThrowOutOfMemory({Host(), nullptr, 0, "an operator"}, "XNNPACK", message,
                     MemoryTracker::Global().Snapshot().ToString());
  }
  ThrowInternal(message);
}

bool SameKey(const XnnpackOperators::Key& a, const XnnpackOperators::Key& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;  // no padding: all members are 8 bytes wide
}

// The same operator made from weights that have been written since.
bool Superseded(XnnpackOperators::Key old, const XnnpackOperators::Key& key) {
  if (key.filter_id == 0) return false;
  old.filter_version = key.filter_version;
  old.bias_version = key.bias_version;
  return SameKey(old, key);
}

}  // namespace

bool XnnpackIsUsable() { return TheRuntime().usable; }
std::string XnnpackDescription() { return TheRuntime().description; }

bool MultipliesExactly(absl::FunctionRef<xnn_status(const float*, const float*, const float*,
                                                    float*)> product) {
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

XnnpackOperators::Entry::~Entry() {
  if (op != nullptr) xnn_delete_operator(op);
}

XnnpackOperators& XnnpackOperators::Global() {
  static XnnpackOperators* const operators = [] {
    auto* made = new XnnpackOperators;
    static const Reclaimer::Registration registration = Reclaimer::Global().Register(
        "xnnpack", [made](ReclaimDepth depth) { return made->Reclaim(depth); });
    return made;
  }();
  return *operators;
}

int64_t XnnpackOperators::Reclaim(ReclaimDepth depth) {
  if (is_taking_memory) return 0;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  Allocator& allocator = Allocator::Global();
  std::unique_lock<std::recursive_mutex> allocating(allocator.mutex(), std::try_to_lock);
  if (!allocating.owns_lock()) return 0;
  const int64_t before = allocator.owned_bytes();
  if (depth == ReclaimDepth::kIdle) {
    std::erase_if(entries_, [](const auto& entry) { return entry.use_count() == 1; });
  }
  allocator.Trim();
  return before - allocator.owned_bytes();
}

std::shared_ptr<XnnpackOperators::Entry> XnnpackOperators::FindOrCreate(
    const Key& key, const char* what, absl::FunctionRef<xnn_status(xnn_operator_t*)> create) {
  std::lock_guard<std::mutex> lock(mutex_);
  const TakingMemory taking;
  ++clock_;
  for (const std::shared_ptr<Entry>& entry : entries_) {
    if (!SameKey(entry->key, key)) continue;
    entry->last_use = clock_;
    return entry;
  }
  // Old weights go before the new are packed, so that both are never held.
  std::erase_if(entries_, [&](const auto& entry) { return Superseded(entry->key, key); });
  if (entries_.size() >= kMaxOperators) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
      return a->last_use < b->last_use;
    }));
  }
  auto entry = std::make_shared<Entry>();
  entry->key = key;
  entry->last_use = clock_;
  Check(create(&entry->op), what);
  entries_.push_back(entry);
  return entry;
}

void XnnpackOperators::With(const Key& key, const char* what,
                            absl::FunctionRef<xnn_status(xnn_operator_t*)> create,
                            absl::FunctionRef<xnn_status(xnn_operator_t)> use) {
  const std::shared_ptr<Entry> entry = FindOrCreate(key, what, create);
  std::lock_guard<std::mutex> running(entry->running);
  Check(use(entry->op), what);
}

bool XnnpackOperators::Remember(const std::array<uint64_t, 7>& weights,
                                absl::FunctionRef<bool()> find) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [known, answer] : answers_) {
    if (known == weights) return answer;
  }
  const bool answer = find();
  if (answers_.size() < kMaxOperators) {
    answers_.emplace_back(weights, answer);
  } else {
    answers_[next_answer_++ % kMaxOperators] = {weights, answer};  // the oldest goes
  }
  return answer;
}

void XnnpackOperators::Clear() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.clear();
  }
  Allocator::Global().Trim();
}

size_t XnnpackOperators::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

}  // namespace tidepool::cpu
