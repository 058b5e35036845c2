// A gradient that is written by hand: what a tape keeps of it until its backward pass, counted.
#ifndef TIDEPOOL_NDARRAY_HAND_GRADIENT_H_
#define TIDEPOOL_NDARRAY_HAND_GRADIENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// What it captures is kept until it has run. Threads: it is run on that of its tape; handles of it may go on any.
class HandGradient {
 public:
  HandGradient() = default;
  HandGradient(const HandGradient&) = delete;
  HandGradient& operator=(const HandGradient&) = delete;
  virtual ~HandGradient() = default;

  // `input_gradients`: undefined, one for each input, and those from which nothing flows stay so. Of outputs to which no
  // gradient came those are undefined. `is_last`: nobody will ask again, so that what it keeps may go as it is used.
  virtual void Run(absl::Span<const NDArray> output_gradients, absl::Span<NDArray> input_gradients,
                   bool is_last) = 0;

  // For who has what it keeps wait elsewhere: each array, in the same order each time; those it does not tell of stay with it. A tape
  // that alone has the function takes them out, so that its handles are the only ones, and puts them back before Run(); an array that
  // `can_be_made_again` may be undefined then, and Run() makes it again from the others. `what` ("input") is for reports and errors.
  using KeptVisit =
      absl::FunctionRef<void(const char* what, NDArray& kept, bool can_be_made_again)>;
  virtual void VisitKept(KeptVisit /*visit*/) {}

 protected:
  // Nobody has it any more. One whose memory is used again overrides this.
  virtual void Done() noexcept { delete this; }

 private:
  friend class HandGradientHandle;
  std::atomic<int32_t> holders_{0};
};

// One of the holders of a function, counted.
class HandGradientHandle {
 public:
  HandGradientHandle() = default;
  // Takes it over: it goes with the last handle.
  explicit HandGradientHandle(HandGradient* function) : function_(function) { Hold(); }
  HandGradientHandle(const HandGradientHandle& other) : function_(other.function_) { Hold(); }
  HandGradientHandle(HandGradientHandle&& other) noexcept
      : function_(std::exchange(other.function_, nullptr)) {}
  HandGradientHandle& operator=(HandGradientHandle other) noexcept {
    std::swap(function_, other.function_);
    return *this;
  }
  ~HandGradientHandle() {
    if (function_ != nullptr && function_->holders_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      function_->Done();
  }

  // Whether there is one, what it is, and whether nobody else holds it.
  explicit operator bool() const { return function_ != nullptr; }
  HandGradient* operator->() const { return function_; }
  bool is_only() const {
    return function_ != nullptr && function_->holders_.load(std::memory_order_acquire) == 1;
  }

 private:
  void Hold() {
    if (function_ != nullptr) function_->holders_.fetch_add(1, std::memory_order_relaxed);
  }
  HandGradient* function_ = nullptr;
};

// By a function that returns the gradients, one for each input; none of an empty one. `name` is for errors.
using GradientsOfInputs =
    std::function<std::vector<NDArray>(absl::Span<const NDArray> output_gradients)>;
HandGradientHandle HandGradientOf(const std::string& name, GradientsOfInputs function);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_HAND_GRADIENT_H_
