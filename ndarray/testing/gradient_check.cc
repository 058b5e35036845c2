#include "tidepool/ndarray/testing/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tidepool {

std::string GradientProblem(const std::function<double()>& loss, NDArray& point,
                            const NDArray& gradient, const GradientCheckOptions& options) {
  if (!(point.shape() == gradient.shape())) {
    return absl::StrCat("the point has shape ", point.shape().ToString(), ", the gradient ",
                        gradient.shape().ToString());
  }
  const std::vector<float> claimed = gradient.ToVector<float>();
  const int64_t count = point.NumElements();
  const int64_t stride = std::max<int64_t>(1, count / options.most_elements);
  double worst = 1;
  std::string problem;
  for (int64_t i = 0; i < count; i += stride) {
    const float value = point.data<float>()[i];
    auto loss_at = [&](double moved) {
      point.mutable_data<float>()[i] = static_cast<float>(moved);
      return loss();
    };
    const double above = loss_at(value + options.step);
    const double below = loss_at(value - options.step);
    point.mutable_data<float>()[i] = value;
    const double numeric = (above - below) / (2 * options.step);
    const double size = std::max(std::abs(numeric), static_cast<double>(std::abs(claimed[i])));
    const double allowed = options.relative * size + options.absolute;
    const double excess = std::abs(numeric - claimed[i]) / allowed;
    if (excess <= worst) continue;  // false for NaN, which is then reported
    worst = std::isnan(excess) ? INFINITY : excess;
    problem = absl::StrCat("element ", i, " of shape ", point.shape().ToString(), ": gradient ",
                           claimed[i], ", central difference ", numeric);
  }
  return problem;
}

double WeightedSum(const NDArray& x, const NDArray& weights) {
  const std::vector<float> values = x.ToVector<float>();
  const std::vector<float> factors = weights.ToVector<float>();
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(values[i]) * factors[i];
  return sum;
}

}  // namespace tidepool
