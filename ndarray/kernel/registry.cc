#include "tidepool/ndarray/kernel/registry.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"

namespace tidepool {
namespace {

using namespace operator_list;  // NOLINT: the list's words

constexpr OperatorInfo kOperators[] = {
#define TIDEPOOL_OPERATOR(code, name, inputs, outputs, flags, types, ...) \
  OperatorInfo{name, inputs, outputs, flags, types},
#include "tidepool/ndarray/kernel/operator_list.inc"
#undef TIDEPOOL_OPERATOR
};

thread_local const char* forced_provider = nullptr;
std::atomic<int> thread_count{0};

}  // namespace

const OperatorInfo& Info(OpCode op) { return kOperators[static_cast<int>(op)]; }

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

void KernelRegistry::Add(const Kernel& kernel) {
  std::vector<Kernel>& kernels = table_[Index(kernel.op, kernel.device, kernel.dtype)];
  for (const Kernel& other : kernels) {
    if (std::strcmp(other.provider, kernel.provider) != 0) continue;
    std::fprintf(stderr, "tidepool: two kernels for [%s] on %s, %s are linked by provider \"%s\"\n",
                 Info(kernel.op).name, DeviceTypeName(kernel.device).c_str(),
                 DTypeName(kernel.dtype), kernel.provider);
    std::abort();
  }
  const auto position = std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& other) {
    return other.priority < kernel.priority;
  });
  kernels.insert(position, kernel);
}

std::vector<std::string> KernelRegistry::Providers() const {
  std::set<std::string> names;
  for (const std::vector<Kernel>& kernels : table_) {
    for (const Kernel& kernel : kernels) names.insert(kernel.provider);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

void KernelRegistry::AddNote(const char* provider, std::string (*note)()) {
  notes_.push_back({provider, note});
}

std::string KernelRegistry::Notes() const {
  std::string out;
  for (const Note& note : notes_) absl::StrAppend(&out, note.provider, ": ", note.text(), "\n");
  return out;
}

std::string KernelRegistry::Table() const {
  std::set<DeviceType> devices;
  for (const std::vector<Kernel>& kernels : table_) {
    for (const Kernel& kernel : kernels) devices.insert(kernel.device);
  }
  std::string out;
  AppendFormat(&out, "%-28s %-10s %-5s %s\n", "operator", "device", "type",
               "providers (first that supports the call runs)");
  for (int op = 0; op < kOpCodes; ++op) {
    for (DeviceType device : devices) {
      for (int dtype = 0; dtype < kDTypes; ++dtype) {
        std::string providers;
        for (const Kernel& kernel :
             Find(static_cast<OpCode>(op), device, static_cast<DType>(dtype))) {
          absl::StrAppend(&providers, providers.empty() ? "" : ", ", kernel.provider);
        }
        if (providers.empty() && !Contains(kOperators[op].types, static_cast<DType>(dtype))) continue;
        AppendFormat(&out, "%-28s %-10s %-5s %s\n", kOperators[op].name,
                     DeviceTypeName(device).c_str(), DTypeName(static_cast<DType>(dtype)),
                     providers.empty() ? "- (none linked)" : providers.c_str());
      }
    }
  }
  return out;
}

ScopedProvider::ScopedProvider(const char* provider) : previous_(forced_provider) {
  forced_provider = provider;
}
ScopedProvider::~ScopedProvider() { forced_provider = previous_; }
const char* ScopedProvider::Current() { return forced_provider; }

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
