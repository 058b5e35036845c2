#include "tidepool/ndarray/linalg/items.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::linalg {

void CheckType(const char* op, const char* operand, const NDArray& x) {
  x.CheckAlive(op, operand);
  if (x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has type ", DTypeName(x.dtype()),
                                    ", expected f32 or f64"));
}

void CheckMatrix(const char* op, const char* operand, const NDArray& x, bool square) {
  CheckType(op, operand, x);
  const int rank = x.rank();
  if (rank >= 2 && (!square || x.dim(rank - 1) == x.dim(rank - 2))) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", op, "]: ", operand, " has shape ", x.shape().ToString(), ", expected ",
                   square ? "square matrices [..., n, n]" : "matrices [..., rows, columns]"));
}

void ThrowSingular(const char* op, int64_t item, int64_t pivot, int64_t size) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: matrix ", item,
                                    " of the batch is singular: pivot ", pivot, " of ", size,
                                    " is 0, expected regular matrices"));
}

Matrices::Matrices(const NDArray& x)
    : dense(x.device() == Host() && x.is_dense() ? x : x.CopyTo(Place::Scratch(Host()))),
      rows(x.dim(x.rank() - 2)),
      columns(x.dim(x.rank() - 1)) {}

Shape LeadOf(const NDArray& x) {
  return Shape(absl::Span<const int64_t>(x.shape().dims(), static_cast<size_t>(x.rank() - 2)));
}

int64_t Items(const Shape& lead) { return lead.NumElements(); }

Shape With(const Shape& lead, absl::Span<const int64_t> more) {
  std::vector<int64_t> dims(lead.span().begin(), lead.span().end());
  dims.insert(dims.end(), more.begin(), more.end());
  return Shape(dims);
}

Result::Result(const Shape& shape, DType dtype, const Place& place)
    : result_(shape, dtype, place), host_(result_) {
  if (result_.device() != Host()) host_ = NDArray(shape, dtype, Place::Scratch(Host()));
}

NDArray Result::Take() {
  if (result_.device() != Host()) CopyInto(host_, result_);
  return result_;
}

void ForEachItem(int64_t items, int64_t work_of_item, absl::FunctionRef<void(int64_t)> body) {
  std::mutex mutex;
  std::exception_ptr error;
  int64_t failed = items;
  ParallelFor(Threads(ThreadCount()), items, 1, items * std::max<int64_t>(1, work_of_item),
              [&](int64_t begin, int64_t end) {
                for (int64_t item = begin; item < end; ++item) {
                  try {  // tasks do not throw
                    body(item);
                  } catch (...) {
                    const std::lock_guard<std::mutex> lock(mutex);
                    if (item < failed) {
                      failed = item;
                      error = std::current_exception();
                    }
                  }
                }
              });
  if (error != nullptr) std::rethrow_exception(error);
}

double CutoffOf(std::optional<double> given, int64_t rows, int64_t columns, DType dtype) {
  if (given.has_value()) return *given;
  const double epsilon = dtype == DType::kFloat32
                             ? static_cast<double>(std::numeric_limits<float>::epsilon())
                             : std::numeric_limits<double>::epsilon();
  return static_cast<double>(std::max(rows, columns)) * epsilon;
}

}  // namespace tidepool::linalg
