#include "tidepool/memory/provider/provider_calls.h"

#include <cxxabi.h>

#include <bit>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"

namespace tidepool {

std::string ProviderName(const DeviceProvider& provider) {
  try {
    return provider.name();
  } catch (...) {
    return absl::StrCat("memory of ", DeviceName(provider.device()));
  }
}

std::string DescribeException() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an exception of no type";  // of another language
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr), &std::free);
  std::string text = name != nullptr ? name.get() : type->name();
  try {
    throw;
  } catch (const std::exception& exception) {
    return absl::StrCat(text, ": ", exception.what());
  } catch (...) {
    return absl::StrCat("an exception of type ", text);
  }
}

void RethrowAsError(std::string_view call, std::string_view where) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    ThrowInternal(
        absl::StrCat(std::string(call), ": ", std::string(where), " threw ", DescribeException()));
  }
}

void RethrowAsError(std::string_view call, Device device) {
  try {
    throw;
  } catch (const DeviceLostError&) {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    // Of a device that is lost nothing else matters, and it may have been found out by this call.
    CheckNotLost(device, call);
  }
  RethrowAsError(call, absl::StrCat("the provider of ", DeviceName(device)));
}

void ComputeAfterOrWait(DeviceProvider& provider, int queue, QueuePoint point) {
  try {
    return provider.ComputeAfter(queue, point);
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    CheckNotLost(provider.device(), "DeviceQueue");
  }
  AskProvider("DeviceQueue", provider.device(), [&] { provider.WaitFor(point); });
}

namespace internal {
namespace {

[[noreturn]] void Refuse(const char* what, DeviceProvider& provider, const std::byte* data,
                         size_t bytes, size_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  ThrowInternal(absl::StrCat("memory provider of ", DeviceName(provider.device()), " (\"",
                             ProviderName(provider), "\"): found ", what, " of ", bytes,
                             " bytes aligned to ", size_t{1} << std::countr_zero(address),
                             ", expected a multiple of ", alignment, "; it has been given back"));
}

}  // namespace

void RefuseBlock(DeviceProvider& provider, std::byte* data, size_t bytes, size_t alignment) {
  provider.Release(data, bytes);
  Refuse("a block", provider, data, bytes, alignment);
}

void RefuseRange(DeviceProvider& provider, std::byte* base, size_t bytes, size_t alignment) {
  provider.Unreserve(base, bytes);
  Refuse("a reserved range", provider, base, bytes, alignment);
}

}  // namespace internal
}  // namespace tidepool
