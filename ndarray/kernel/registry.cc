#include "tidepool/ndarray/kernel/registry.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"
#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/ndarray/kernel/attributes_indexing.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/operand_marks.h"
#include "tidepool/ndarray/kernel/operator_cost.h"

namespace tidepool {
namespace {

using namespace operator_list;  // NOLINT: the list's words

std::atomic<int> thread_count{0};

}  // namespace

constexpr OperatorInfo internal::kListedOperators[kOpCodes] = {
#define TIDEPOOL_OPERATOR(code, name, inputs, outputs, attributes, flags, types, shape, gradient, \
                          cost)                                                                   \
  WithOperands({name, inputs, outputs, AttributesType::Of<attributes>(), flags, types, shape,     \
                gradient, cost}),
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
};

namespace {

constexpr bool AreMarksOfTheListKnown() {
  for (const OperatorInfo& info : internal::kListedOperators) {
    for (const OperandMark& mark : info.marks) {
      if (mark.type == kNoTypeMark) return false;
    }
    for (int o = 0; o < info.output_count; ++o) {
      if (info.output_mark(o).optional) return false;
    }
    const OperandMark& key = info.key_is_input() ? info.input_mark(0) : info.output_mark(0);
    if (key.type != 0 || key.optional) return false;
  }
  return true;
}
static_assert(AreMarksOfTheListKnown(),
              "a row's operand has a mark that operator_list.inc does not explain");

std::string ReadableName(const std::type_info& type) {
  int status = 0;
  char* const readable = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  const std::string name = readable != nullptr ? readable : type.name();
  std::free(readable);
  return name;
}

}  // namespace

bool OperatorInfo::has_gradient_operators() const {
  for (const char* const reason : {kNoGradient, kComposed, kUnwritten}) {
    if (std::strcmp(gradient, reason) == 0) return false;
  }
  return true;
}

std::string AttributesType::name() const { return ReadableName(*type_); }
std::string AttributesRef::type_name() const { return ReadableName(*type_); }

std::string OperandName(const char* operands, int position) {
  const char* begin = operands;
  for (; position > 0 && begin != nullptr; --position) {
    begin = std::strchr(begin, ',');
    if (begin != nullptr) ++begin;
  }
  return begin == nullptr ? "extra" : std::string(begin, std::strcspn(begin, ",:?"));
}

KernelRegistry& KernelRegistry::Global() {
  static KernelRegistry* const registry = new KernelRegistry;
  return *registry;
}

constinit std::atomic<const KernelRegistry::Row*> KernelRegistry::rows_[kMaxDeviceTypes]
                                                                       [kMaxOpCodes][kDTypes] = {};

template <typename Function>
void KernelRegistry::ForEachRow(const Function& function) {
  for (int type = 0; type < DeviceType::count(); ++type) {
    for (const auto& of_operator : rows_[type]) {
      for (const std::atomic<const Row*>& row : of_operator) {
        if (const Row* kernels = row.load(std::memory_order_acquire)) function(*kernels);
      }
    }
  }
}

namespace {

// "[relu] on host, f32 by provider "mine", priority 30"; of operators and types there are.
std::string Describe(const Kernel& kernel) {
  return absl::StrCat("[", Info(kernel.op).name, "] on ", DeviceTypeName(kernel.device), ", ",
                      DTypeName(kernel.dtype), " by provider \"", kernel.provider, "\", priority ",
                      kernel.priority);
}

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "tidepool: %s\n", what.c_str());
  std::abort();
}

void CheckKernel(const Kernel& kernel) {
  const char* const provider = kernel.provider != nullptr ? kernel.provider : "";
  if (static_cast<int>(kernel.op) >= OperatorCount() || static_cast<int>(kernel.dtype) >= kDTypes) {
    Refuse(absl::StrCat("a kernel by provider \"", provider, "\" is for operator ",
                        static_cast<int>(kernel.op), " and element type ",
                        static_cast<int>(kernel.dtype), ", expected 0 to ", OperatorCount() - 1,
                        " and 0 to ", kDTypes - 1));
  }
  if (*provider == 0) {
    Refuse(absl::StrCat("a kernel for [", Info(kernel.op).name, "] has no provider's name"));
  }
  if (kernel.device.number() >= DeviceType::count()) {
    Refuse(absl::StrCat("a kernel for [", Info(kernel.op).name, "] by provider \"", provider,
                        "\" is for device type ", kernel.device.number(), ", expected 0 to ",
                        DeviceType::count() - 1));
  }
  // Tables have a line for each.
  if (std::any_of(provider, provider + std::strlen(provider), absl::ascii_iscntrl)) {
    Refuse(absl::StrCat("the kernel for ", Describe(kernel),
                        ": found control characters in the provider's name"));
  }
  if (kernel.run == nullptr) {
    Refuse(absl::StrCat("the kernel for ", Describe(kernel), " has no function to run"));
  }
  if (!Contains(Info(kernel.op).types, kernel.dtype)) {
    Refuse(absl::StrCat("the kernel for ", Describe(kernel),
                        ": the operator is not defined for such elements"));
  }
  if (kernel.op == OpCode::kCopy && !kernel.strided) {
    Refuse(absl::StrCat(
        "the kernel for ", Describe(kernel),
        ": found dense operands only, expected strided ones: it is what makes views dense"));
  }
}

}  // namespace

void KernelRegistry::Add(const Kernel& kernel) {
  CheckKernel(kernel);
  std::vector<void (*)(const Kernel&)> followers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Insert(kernel);
    followers = followers_;
  }
  for (const auto follower : followers) follower(kernel);
}

void KernelRegistry::Follow(void (*added)(const Kernel& kernel)) {
  if (added == nullptr) Refuse("found null as a follower of kernels, expected a function");
  std::vector<Kernel> known;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ForEachRow(
        [&](const Row& kernels) { known.insert(known.end(), kernels.begin(), kernels.end()); });
    followers_.push_back(added);
  }
  for (const Kernel& kernel : known) added(kernel);
}

void KernelRegistry::Insert(const Kernel& kernel) {
  std::atomic<const Row*>& row = RowOf(kernel.op, kernel.device, kernel.dtype);
  const Row* const before = row.load(std::memory_order_relaxed);
  auto kernels = before != nullptr ? std::make_unique<Row>(*before) : std::make_unique<Row>();
  for (const Kernel& other : *kernels) {
    const bool same_provider = std::strcmp(other.provider, kernel.provider) == 0;
    if (!same_provider && other.priority != kernel.priority) continue;
    Refuse(absl::StrCat("two kernels are linked of one ", same_provider ? "provider" : "priority",
                        ": ", Describe(other), " and ", Describe(kernel)));
  }
  const auto position = std::find_if(kernels->begin(), kernels->end(), [&](const Kernel& other) {
    return other.priority < kernel.priority;
  });
  kernels->insert(position, kernel);
  // What is replaced is kept: somebody may be reading it.
  static auto* const replaced = new std::vector<std::unique_ptr<const Row>>;
  if (before != nullptr) replaced->emplace_back(before);
  row.store(kernels.release(), std::memory_order_release);
}

std::vector<std::string> KernelRegistry::Providers() const {
  std::set<std::string> names;
  ForEachRow([&](const Row& kernels) {
    for (const Kernel& kernel : kernels) names.insert(kernel.provider);
  });
  return std::vector<std::string>(names.begin(), names.end());
}

void KernelRegistry::AddNote(const char* provider, std::string (*note)()) {
  if (provider == nullptr || *provider == 0) Refuse("a note has no provider's name");
  if (note == nullptr) {
    Refuse(
        absl::StrCat("found null as the note of provider \"", provider, "\", expected a function"));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  notes_.push_back({provider, note});
}

std::string KernelRegistry::Notes() const {
  std::vector<Note> notes;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    notes = notes_;
  }
  std::string out;
  for (const Note& note : notes) absl::StrAppend(&out, note.provider, ": ", note.text(), "\n");
  return out;
}

std::string KernelRegistry::Table() const {
  std::set<DeviceType> devices;
  ForEachRow([&](const Row& kernels) { devices.insert(kernels.front().device); });
  std::string out;
  AppendFormat(&out, "%-28s %-10s %-5s %s\n", "operator", "device", "type",
               "providers (first that supports the call runs)");
  for (int op = 0; op < OperatorCount(); ++op) {
    const OperatorInfo& info = Info(static_cast<OpCode>(op));
    for (DeviceType device : devices) {
      for (int dtype = 0; dtype < kDTypes; ++dtype) {
        std::string providers;
        for (const Kernel& kernel :
             Find(static_cast<OpCode>(op), device, static_cast<DType>(dtype))) {
          absl::StrAppend(&providers, providers.empty() ? "" : ", ", kernel.provider);
        }
        if (providers.empty() && !Contains(info.types, static_cast<DType>(dtype))) continue;
        AppendFormat(&out, "%-28s %-10s %-5s %s\n", info.name, DeviceTypeName(device).c_str(),
                     DTypeName(static_cast<DType>(dtype)),
                     providers.empty() ? "- (none linked)" : providers.c_str());
      }
    }
  }
  return out;
}

thread_local constinit const char* ScopedProvider::current_ = nullptr;

ScopedProvider::ScopedProvider(const char* provider) : previous_(current_) { current_ = provider; }
ScopedProvider::~ScopedProvider() { current_ = previous_; }

void SetThreadCount(int threads) {
  if (threads < 1 || threads > 1024) {
    ThrowInvalidArgument(absl::StrCat("thread count is ", threads, ", expected 1 to 1024"));
  }
  thread_count.store(threads, std::memory_order_relaxed);
}

int ThreadCount() {
  const int threads = thread_count.load(std::memory_order_relaxed);
  if (threads > 0) return threads;
  static const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return processors;
}

}  // namespace tidepool
