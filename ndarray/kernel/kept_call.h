// KeptCall: a call that outlives its caller, for devices whose kernels run later. What a KernelCall
// points to lives as long as the call; this has shapes, strides and attributes of its own. The
// operands' bytes are the device's: they stay until what is queued has used them
// (provider/device_provider.h).
//
//   void RunAdd(const KernelCall& call) {
//     auto kept = std::make_shared<KeptCall>(call);
//     device.Queue(kept->Extents(), [kept] { AddOnDevice(kept->call()); });
//   }
//
// Threads: as a value; it is made by the caller and used by whoever runs it. Cost: one allocation,
// and one more for attributes.
#ifndef TIDEPOOL_NDARRAY_KERNEL_KEPT_CALL_H_
#define TIDEPOOL_NDARRAY_KERNEL_KEPT_CALL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// Bytes [begin, end).
struct ByteExtent {
  std::byte* begin = nullptr;  // null: there are none
  std::byte* end = nullptr;    // behind the last
};

// From the lowest to behind the highest element of an operand; empty where it is absent or has
// none.
inline ByteExtent ExtentOf(const TensorRef& ref) {
  if (!ref.present || ref.data == nullptr || ref.NumElements() == 0) return {};
  int64_t lowest = 0, highest = 0;
  for (int i = 0; i < ref.rank; ++i) {
    const int64_t reach = (ref.dims[i] - 1) * ref.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto width = static_cast<int64_t>(DTypeBytes(ref.dtype));
  return {ref.as<std::byte>() + lowest * width, ref.as<std::byte>() + (highest + 1) * width};
}

class KeptCall {
 public:
  // Copies what the call points to, but for elements and scratch; its pool of threads is left out.
  explicit KeptCall(const KernelCall& call) : call_(call), inputs_(call.inputs.size()) {
    const size_t operands = inputs_ + call.outputs.size();
    refs_.reserve(operands);
    size_t ranks = 0;
    for (const auto& refs : {call.inputs, call.outputs}) {
      for (const TensorRef& ref : refs) {
        refs_.push_back(ref);
        ranks += static_cast<size_t>(ref.rank);
      }
    }
    layouts_.resize(2 * ranks);
    int64_t* next = layouts_.data();
    for (TensorRef& ref : refs_) {
      for (const int64_t** const numbers : {&ref.dims, &ref.strides}) {
        int64_t* const kept = next;
        next = std::copy_n(*numbers, ref.rank, next);
        *numbers = kept;
      }
    }
    const size_t bytes = Info(call.op).attributes.bytes();
    if (call.attributes != nullptr && bytes > 0) {
      attributes_ = std::make_unique<Unit[]>((bytes + sizeof(Unit) - 1) / sizeof(Unit));
      std::copy_n(static_cast<const std::byte*>(call.attributes), bytes,
                  reinterpret_cast<std::byte*>(attributes_.get()));
      call_.attributes = attributes_.get();
    }
    call_.threads.pool = nullptr;  // the caller's may have gone by then
    call_.inputs = absl::MakeConstSpan(refs_).first(inputs_);
    call_.outputs = absl::MakeConstSpan(refs_).subspan(inputs_);
  }
  KeptCall(const KeptCall&) = delete;
  KeptCall& operator=(const KeptCall&) = delete;

  // The call, as a kernel takes it; points into this.
  const KernelCall& call() const { return call_; }

  // What the kernel may use: of each operand that has elements, and of the scratch.
  std::vector<ByteExtent> Extents() const {
    std::vector<ByteExtent> extents;
    if (call_.scratch_bytes > 0) {
      auto* const scratch = static_cast<std::byte*>(call_.scratch);
      extents.push_back({scratch, scratch + call_.scratch_bytes});
    }
    for (const TensorRef& ref : refs_) {
      if (const ByteExtent extent = ExtentOf(ref); extent.begin != nullptr)
        extents.push_back(extent);
    }
    return extents;
  }

  // For devices that find the bytes elsewhere than at their addresses: `translate` gets the address
  // of each operand that has bytes, and of the scratch. Once.
  template <typename Function>
  void TranslateAddresses(const Function& translate) {
    for (TensorRef& ref : refs_) {
      if (ExtentOf(ref).begin != nullptr) ref.data = translate(ref.data);
    }
    if (call_.scratch != nullptr) call_.scratch = translate(call_.scratch);
  }

 private:
  struct alignas(std::max_align_t) Unit {
    std::byte bytes[sizeof(std::max_align_t)];
  };

  KernelCall call_;
  size_t inputs_;
  std::vector<TensorRef> refs_;  // inputs, then outputs
  std::vector<int64_t> layouts_;
  std::unique_ptr<Unit[]> attributes_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_KEPT_CALL_H_
