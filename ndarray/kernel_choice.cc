#include "tidepool/ndarray/kernel_choice.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel_run.h"

namespace tidepool {
namespace {

[[noreturn]] void ThrowNoKernel(OpCode op, Device device, DType dtype,
                                absl::Span<const Kernel> candidates,
                                const std::string& why_no_fallback) {
  const std::vector<std::string> providers = KernelRegistry::Global().Providers();
  const char* forced = ScopedProvider::Current();
  bool linked_but_refused = false;
  for (const Kernel& kernel : candidates) {
    if (forced == nullptr || std::strcmp(forced, kernel.provider) == 0) linked_but_refused = true;
  }
  ThrowUnimplemented(absl::StrCat(
      "Op [", Info(op).name, "]: no ", forced != nullptr ? absl::StrCat("\"", forced, "\" ") : "",
      "kernel for ", DTypeName(dtype), " on ", DeviceName(device),
      linked_but_refused ? " supports this call" : " is linked",
      "; linked providers: ", providers.empty() ? "none" : absl::StrJoin(providers, ", "),
      device == Host()
          ? std::string("; add //backends:linked, //backends/cpu or //backends/reference to deps")
          : absl::StrCat("; not done on the host, as ", why_no_fallback)));
}

bool Supports(const Kernel& kernel, const KernelCall& call) {
  try {
    return kernel.supports == nullptr || kernel.supports(call);
  } catch (...) {
    internal::RethrowOfKernel(kernel, call.op);
  }
}

const Kernel* FindKernel(const KernelCall& call, absl::Span<const Kernel> candidates,
                         const char* provider) {
  for (const Kernel& kernel : candidates) {
    if (provider != nullptr && std::strcmp(provider, kernel.provider) != 0) continue;
    if (Supports(kernel, call)) return &kernel;
  }
  return nullptr;
}

}  // namespace

const Kernel* internal::ChooseAmong(absl::Span<const Kernel> candidates, const KernelCall& call,
                                    DType dtype, absl::Span<const NDArray* const> inputs,
                                    absl::Span<NDArray* const> outputs) {
  const char* forced = ScopedProvider::Current();
  const Kernel* kernel = FindKernel(call, candidates, forced);
  if (kernel == nullptr && (call.op == OpCode::kFill || call.op == OpCode::kCopy)) {
    if (call.device != Host()) return nullptr;
    if (forced != nullptr) kernel = FindKernel(call, candidates, "builtin");
  }
  if (kernel != nullptr) return kernel;
  std::string why_not;
  if (call.device != Host()) {
    why_not = WhyNoFallback(inputs, outputs);
    if (why_not.empty() && KernelRegistry::Find(call.op, DeviceType::kHost, dtype).empty()) {
      why_not = "no kernel of the host is linked for it";
    }
    if (why_not.empty()) return nullptr;
  }
  ThrowNoKernel(call.op, call.device, dtype, candidates, why_not);
}

}  // namespace tidepool
