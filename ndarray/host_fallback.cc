#include "tidepool/ndarray/host_fallback.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/mirroring/buffer_mirror.h"
#include "tidepool/memory/mirroring/mirror_counters.h"
#include "tidepool/memory/provider/value_faults.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/value_checks.h"
#include "tidepool/ndarray/view_overlap.h"

namespace tidepool {
namespace {

std::atomic<uint64_t> fallbacks[kMaxOpCodes] = {};

// The host copy of a buffer as a buffer of its own, for the length of a call.
class TwinOwner final : public BufferOwner {
  void Release(Buffer* buffer) noexcept override { delete buffer; }
  void Close(Buffer*) noexcept override {}
  std::string DescribeStale(uint64_t) const override { return ""; }
};
constinit TwinOwner twin_owner;
constinit std::atomic<uint64_t> always_alive{1};

size_t BytesOf(const NDArray& array) {
  return static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype());
}

std::pair<size_t, size_t> RangeOf(const NDArray& array) {
  const auto [begin, end] = ExtentOf(array);
  return {static_cast<size_t>(begin - array.buffer()->data),
          static_cast<size_t>(end - array.buffer()->data)};
}

class Twins {
 public:
  NDArray Of(const NDArray& array, bool writes, const char* op) {
    if (array.NumElements() == 0) return NDArray(array.shape(), array.dtype(), Place::Heap());
    Buffer& buffer = *array.buffer().get();
    const auto [begin, end] = RangeOf(array);
    std::byte* const host = BufferMirror::Of(buffer).OnHost(
        writes ? MirrorEvent::kHostWrite : MirrorEvent::kHostRead, begin, end, op);
    const int64_t first = static_cast<int64_t>(array.raw_data() - buffer.data) /
                          static_cast<int64_t>(DTypeBytes(array.dtype()));
    return NDArray::FromStrides(TwinOf(buffer, host), first, array.shape(),
                                absl::MakeConstSpan(array.strides(), array.rank()), array.dtype());
  }

 private:
  // One for each buffer: operands of one buffer may be views that overlap.
  BufferHandle TwinOf(const Buffer& buffer, std::byte* host) {
    for (const auto& [of, twin] : twins_) {
      if (of == &buffer) return twin;
    }
    auto twin = std::make_unique<Buffer>();
    twin->stamp_cell = &always_alive;
    twin->stamp.store(1, std::memory_order_relaxed);
    twin->data = host;
    twin->bytes = buffer.bytes;
    twin->id = NextBufferId();
    twin->device = Host();
    twin->kind = MemoryKind::kExternal;
    twin->owner = &twin_owner;
    twins_.emplace_back(&buffer, BufferHandle(twin.release()));
    return twins_.back().second;
  }

  std::vector<std::pair<const Buffer*, BufferHandle>> twins_;
};

std::string WhyNotOnHost(absl::Span<const NDArray* const> inputs,
                         absl::Span<NDArray* const> outputs) {
  if (ScopedProvider::Current() != nullptr) return "a provider was asked for by name";
  const auto why = [](const NDArray* array) {
    return array != nullptr && array->buffer() ? array->buffer()->owner->WhyNoHostCopy() : "";
  };
  std::string reason;
  for (const NDArray* input : inputs) {
    if (reason = why(input); !reason.empty()) return reason;
  }
  for (const NDArray* output : outputs) {
    if (reason = why(output); !reason.empty()) return reason;
  }
  return "";
}

}  // namespace

std::string WhyNoFallback(absl::Span<const NDArray* const> inputs,
                          absl::Span<NDArray* const> outputs) {
  if (const WorkspaceCore* core = CurrentPlace();
      core != nullptr && !core->config.helper_allow_fallback) {
    return absl::StrCat("helper_allow_fallback of workspace [", core->id, "] is off");
  }
  return WhyNotOnHost(inputs, outputs);
}

bool BelongsOnHost(OpCode op, DType dtype, absl::Span<const NDArray* const> inputs,
                   absl::Span<NDArray* const> outputs) {
  const WorkspaceCore* const core = CurrentPlace();
  if (core == nullptr || core->config.helper_min_size == 0) return false;
  const size_t limit = core->config.helper_min_size;
  bool any_input = false;
  for (const NDArray* output : outputs) {
    if (BytesOf(*output) >= limit) return false;
  }
  for (const NDArray* input : inputs) {
    if (input == nullptr || input->NumElements() == 0) continue;
    if (BytesOf(*input) >= limit) return false;
    BufferMirror* const mirror = BufferMirror::Find(*input->buffer().get());
    const auto [begin, end] = RangeOf(*input);
    if (mirror == nullptr || !mirror->has_host_copy() || !mirror->IsFreshOnHost(begin, end)) {
      return false;
    }
    any_input = true;
  }
  return any_input && WhyNotOnHost(inputs, outputs).empty() &&
         !KernelRegistry::Find(op, DeviceType::kHost, dtype).empty();
}

void DispatchOnHost(OpCode op, absl::Span<const NDArray* const> inputs,
                    absl::Span<NDArray* const> outputs, AttributesRef attributes) {
  const char* const name = Info(op).name;
  RefuseWhileCapturing(name, "it runs on the host, which replays would not do again");
  Twins twins;
  std::vector<NDArray> arrays;
  arrays.reserve(inputs.size() + outputs.size());
  std::vector<const NDArray*> host_inputs;
  std::vector<NDArray*> host_outputs;
  for (const NDArray* input : inputs) {
    if (input == nullptr) {
      host_inputs.push_back(nullptr);
      continue;
    }
    arrays.push_back(twins.Of(*input, false, name));
    host_inputs.push_back(&arrays.back());
  }
  for (const NDArray* output : outputs) {
    arrays.push_back(twins.Of(*output, true, name));
    host_outputs.push_back(&arrays.back());
  }
  if (ChecksValues(outputs[0]->device()))
    CheckValuesOf(op, host_inputs, absl::MakeConstSpan(host_outputs), attributes);
  for (NDArray* output : outputs) output->MarkWritten();
  Dispatch(op, host_inputs, absl::MakeConstSpan(host_outputs), attributes);
}

void CountHostFallback(OpCode op) {
  fallbacks[static_cast<int>(op)].fetch_add(1, std::memory_order_relaxed);
  CountHostFallback();
  if (WorkspaceCore* core = CurrentPlace()) ++core->counters.host_fallbacks;
}

uint64_t HostFallbacksOf(OpCode op) {
  Info(op);  // of those there are
  return fallbacks[static_cast<int>(op)].load(std::memory_order_relaxed);
}

std::string DescribeHostFallbacks() {
  std::string text;
  for (int op = 0; op < OperatorCount(); ++op) {
    const uint64_t count = fallbacks[op].load(std::memory_order_relaxed);
    if (count == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", Info(static_cast<OpCode>(op)).name, " ",
                    count);
  }
  return text;
}

}  // namespace tidepool
