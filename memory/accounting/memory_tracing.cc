#include "tidepool/memory/accounting/memory_tracing.h"

#include <cxxabi.h>
#include <execinfo.h>

#include <cstdlib>
#include <memory>

namespace tidepool {
namespace {

struct Free {
  void operator()(void* data) const { std::free(data); }
};

// "program(_ZN3FooEv+0x1f) [0x..]" -> "Foo()"; without a name "program+0x1234".
std::string FunctionOf(const std::string& symbol) {
  const size_t open = symbol.find('(');
  const size_t plus = symbol.find('+', open);
  const size_t close = symbol.find(')', open);
  if (open == std::string::npos || plus == std::string::npos || close == std::string::npos) {
    return symbol;
  }
  const std::string name = symbol.substr(open + 1, plus - open - 1);
  if (name.empty()) {
    const size_t slash = symbol.rfind('/', open);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    return symbol.substr(begin, open - begin) + symbol.substr(plus, close - plus);
  }
  int status = 0;
  std::unique_ptr<char, Free> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status));
  return status == 0 ? std::string(text.get()) : name;
}

}  // namespace

std::atomic<uint8_t> MemoryTracing::watches_{0};

void MemoryTracing::Enable() {
  void* frame;
  backtrace(&frame, 1);  // the first call loads a library, which takes memory
  watches_.fetch_or(kTraces, std::memory_order_relaxed);
}

void AllocationTrace::Capture() noexcept {
  owner_ = &MemoryOwner::Current();
  depth_ = backtrace(frames_, kFrames);
}

std::string AllocationTrace::Owner() const {
  if (owner_ == nullptr) return "";
  const std::string tag = owner_->Tag();
  return tag.empty() ? owner_->Path() : owner_->Path() + " #" + tag;
}

std::string AllocationTrace::Site() const {
  const std::unique_ptr<char*, Free> symbols(backtrace_symbols(frames_, depth_));
  if (symbols == nullptr) return "";
  std::string out;
  // Capture() itself and the workspace's request are known.
  for (int i = 2; i < depth_; ++i) {
    if (!out.empty()) out += " < ";
    out += FunctionOf(symbols.get()[i]);
  }
  return out;
}

}  // namespace tidepool
