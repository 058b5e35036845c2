// Attention in the wide type: a row of scores, its softmax, its sum of values. The gradient takes the
// weights from log_sum_exp, as it is told.
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"
#include "tidepool/ndarray/kernel/attributes_attention.h"

namespace tidepool {
namespace {

template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
class Scores {
 public:
  explicit Scores(const KernelCall& call)
      : attributes_(call.attrs<AttentionAttributes>()),
        query_(call.inputs[0]),
        key_(call.inputs[1]),
        mask_(call.inputs[3]),
        keys(key_.dims[2]),
        group(query_.dims[1] / key_.dims[1]),
        scale(attributes_.ScaleOf(query_.dims[3])) {}

  // Of the keys that the query sees.
  std::vector<Wide<T>> Row(int64_t batch, int64_t head, int64_t query) const {
    std::vector<Wide<T>> row(attributes_.Visible(query, keys));
    for (int64_t j = 0; j < static_cast<int64_t>(row.size()); ++j) {
      Wide<T> sum = 0;
      for (int64_t e = 0; e < query_.dims[3]; ++e) {
        sum += static_cast<Wide<T>>(At<T>(query_, batch, head, query, e)) *
               static_cast<Wide<T>>(At<T>(key_, batch, head / group, j, e));
      }
      row[j] = scale * sum;
      if (mask_.present) {
        const auto at = [this](int axis, int64_t i) { return mask_.dims[axis] == 1 ? 0 : i; };
        row[j] +=
            static_cast<Wide<T>>(At<T>(mask_, at(0, batch), at(1, head), at(2, query), at(3, j)));
      }
    }
    return row;
  }

 private:
  const AttentionAttributes attributes_;
  const TensorRef &query_, &key_, &mask_;

 public:
  const int64_t keys, group;
  const Wide<T> scale;
};

template <typename Visit>
void ForEachRow(const TensorRef& query, Visit visit) {
  for (int64_t b = 0; b < query.dims[0]; ++b) {
    for (int64_t h = 0; h < query.dims[1]; ++h) {
      for (int64_t i = 0; i < query.dims[2]; ++i) visit(b, h, i);
    }
  }
}

template <typename T>
void Attention(const KernelCall& call) {
  const Scores<T> scores(call);
  const TensorRef &value = call.inputs[2], &z = call.outputs[0];
  ForEachRow(call.inputs[0], [&](int64_t b, int64_t h, int64_t i) {
    std::vector<Wide<T>> row = scores.Row(b, h, i);
    constexpr Wide<T> kNothing = -std::numeric_limits<Wide<T>>::infinity();
    Wide<T> largest = kNothing, sum = 0;
    for (const Wide<T> score : row) largest = score > largest ? score : largest;
    for (Wide<T>& score : row) {
      score = score == kNothing ? 0 : std::exp(score - largest);
      sum += score;
    }
    for (int64_t e = 0; e < value.dims[3]; ++e) {
      Wide<T> total = 0;
      for (size_t j = 0; j < row.size(); ++j) {
        total += row[j] * static_cast<Wide<T>>(At<T>(value, b, h / scores.group, j, e));
      }
      At<T>(z, b, h, i, e) = Narrow<T>(sum == 0 ? 0 : total / sum);
    }
    At<Statistic<T>>(call.outputs[1], b, h, i) =
        static_cast<Statistic<T>>(sum == 0 ? kNothing : largest + std::log(sum));
  });
}

template <typename T>
class Total {  // of a gradient, in the wide type
 public:
  explicit Total(const TensorRef& to) : to_(to), sums_(to.NumElements()) {}
  Wide<T>& At(int64_t a, int64_t b, int64_t c, int64_t d) {
    return sums_[((a * to_.dims[1] + b) * to_.dims[2] + c) * to_.dims[3] + d];
  }
  void Store() {
    size_t at = 0;
    for (int64_t a = 0; a < to_.dims[0]; ++a) {
      for (int64_t b = 0; b < to_.dims[1]; ++b) {
        for (int64_t c = 0; c < to_.dims[2]; ++c) {
          for (int64_t d = 0; d < to_.dims[3]; ++d) {
            tidepool::At<T>(to_, a, b, c, d) = Narrow<T>(sums_[at++]);
          }
        }
      }
    }
  }

 private:
  const TensorRef& to_;
  std::vector<Wide<T>> sums_;
};

template <typename T>
void AttentionGrad(const KernelCall& call) {
  const Scores<T> scores(call);
  const TensorRef &query = call.inputs[0], &key = call.inputs[1], &value = call.inputs[2];
  const TensorRef &z = call.inputs[4], &dz = call.inputs[6];
  Total<T> dquery(call.outputs[0]), dkey(call.outputs[1]), dvalue(call.outputs[2]);
  const auto wide = [](const TensorRef& ref, int64_t a, int64_t b, int64_t c, int64_t d) {
    return static_cast<Wide<T>>(At<T>(ref, a, b, c, d));
  };
  ForEachRow(query, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t of_key = h / scores.group, width = query.dims[3], value_width = value.dims[3];
    const std::vector<Wide<T>> row = scores.Row(b, h, i);
    const Wide<T> log_sum = At<Statistic<T>>(call.inputs[5], b, h, i);
    if (log_sum == -std::numeric_limits<Wide<T>>::infinity()) return;  // it sees nothing
    Wide<T> delta = 0;
    for (int64_t e = 0; e < value_width; ++e) delta += wide(dz, b, h, i, e) * wide(z, b, h, i, e);
    for (size_t j = 0; j < row.size(); ++j) {
      const Wide<T> weight = std::exp(row[j] - log_sum);
      Wide<T> dweight = 0;
      for (int64_t e = 0; e < value_width; ++e) {
        dweight += wide(dz, b, h, i, e) * wide(value, b, of_key, j, e);
        dvalue.At(b, of_key, j, e) += weight * wide(dz, b, h, i, e);
      }
      const Wide<T> dscore = weight * (dweight - delta) * scores.scale;
      for (int64_t e = 0; e < width; ++e) {
        dquery.At(b, h, i, e) += dscore * wide(key, b, of_key, j, e);
        dkey.At(b, of_key, j, e) += dscore * wide(query, b, h, i, e);
      }
    }
  });
  dquery.Store();
  dkey.Store();
  dvalue.Store();
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAttention, Attention),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kAttentionGrad, AttentionGrad),
});

}  // namespace
}  // namespace tidepool
