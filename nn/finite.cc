#include "tidepool/nn/finite.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::nn {

NDArray FiniteMark(const NDArray& x) {
  if (x.NumElements() == 0) return Zeros({}, x.dtype(), Place::CurrentOn(x.device()));
  // NaN goes through both, and times zero infinity is NaN: one number, and no array of an element
  // for each of x.
  return Max(x) * 0.0 + Min(x) * 0.0;
}

bool AllFinite(const NDArray& x) {
  if (x.NumElements() == 0) return true;
  return Cast(FiniteMark(x).To(Host()), DType::kFloat64).At<double>({}) == 0;
}

std::string FindNotFinite(const Network& network) {
  const HandlesOwnScope handles;  // a model's manager is capped
  if (AllFinite(network.arrays())) return "";
  for (const NamedParameter& parameter : network.named_parameters()) {
    const NDArray values = Cast(parameter.value.To(Host()), DType::kFloat64);
    const double* data = values.data<double>();
    for (int64_t i = 0; i < values.NumElements(); ++i) {
      if (std::isfinite(data[i])) continue;
      const Shape& shape = values.shape();
      std::vector<int64_t> at(static_cast<size_t>(shape.rank()));
      int64_t rest = i;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        at[static_cast<size_t>(axis)] = rest % shape[axis];
        rest /= shape[axis];
      }
      return absl::StrCat("parameter \"", parameter.name, "\" holds ", data[i], " at [",
                          absl::StrJoin(at, ", "), "]");
    }
  }
  return "";  // what lies between the parameters is nobody's
}

void RequireFinite(const Network& network, const std::string& where) {
  const std::string found = FindNotFinite(network);
  if (found.empty()) return;
  ThrowDataLoss(absl::StrCat(OneLine(where), ": ", found, ", expected finite numbers"));
}

}  // namespace tidepool::nn
