#include "tidepool/ndarray/hand_gradient.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

class ByFunction final : public HandGradient {
 public:
  ByFunction(const std::string& name, GradientsOfInputs function)
      : name_(name), function_(std::move(function)) {}

  void Run(absl::Span<const NDArray> output_gradients, absl::Span<NDArray> input_gradients,
           bool /*is_last*/) override {
    std::vector<NDArray> found = function_(output_gradients);
    if (found.size() != input_gradients.size()) {
      ThrowInvalidArgument(absl::StrCat(
          "gradient tape: Op [", name_, "]: its gradient function returned ", found.size(),
          " arrays, expected one for each of ", input_gradients.size(), " inputs"));
    }
    std::move(found.begin(), found.end(), input_gradients.begin());
  }

 private:
  const std::string name_;
  const GradientsOfInputs function_;
};

}  // namespace

HandGradientHandle HandGradientOf(const std::string& name, GradientsOfInputs function) {
  if (!function) return HandGradientHandle();
  return HandGradientHandle(new ByFunction(name, std::move(function)));
}

}  // namespace tidepool
