// What the functions of linalg share: operands as batches of dense matrices on the host, results likewise.
#ifndef TIDEPOOL_NDARRAY_LINALG_ITEMS_H_
#define TIDEPOOL_NDARRAY_LINALG_ITEMS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/ndarray.h"

// Eigen's headers are large: only sources of linalg see them, with these settings.
#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE

namespace tidepool::linalg {

// kFailedPrecondition for a stale one, kInvalidArgument for another type than f32 and f64.
void CheckType(const char* op, const char* operand, const NDArray& x);
void CheckMatrix(const char* op, const char* operand, const NDArray& x, bool square);
[[noreturn]] void ThrowSingular(const char* op, int64_t item, int64_t pivot, int64_t size);

// A batch of matrices, dense on the host for the length of a call. Its leading axes may be broadcast.
struct Matrices {
  NDArray dense;
  int64_t rows, columns;

  explicit Matrices(const NDArray& x);
  template <typename T>
  const T* At(int64_t item) const {
    return dense.NumElements() == 0 ? nullptr : dense.data<T>() + item * rows * columns;
  }
};

Shape LeadOf(const NDArray& x);
int64_t Items(const Shape& lead);
// The shape with more axes behind.
Shape With(const Shape& lead, absl::Span<const int64_t> more);

// A result, written on the host and then where it belongs.
class Result {
 public:
  Result(const Shape& shape, DType dtype, const Place& place);
  template <typename T>
  T* At(int64_t item, int64_t size) {
    return host_.NumElements() == 0 ? nullptr : host_.mutable_data<T>() + item * size;
  }
  NDArray Take();  // once all is written

 private:
  NDArray result_, host_;
};

// What was computed from what, for a tape of gradients that records this thread. Without `backward` there are none.
template <typename... Outputs>
void Note(const char* op, std::initializer_list<const NDArray*> inputs, GradientsOfInputs backward,
          const Outputs&... outputs) {
  CallRecorder* const recorder = CallRecorder::Current();
  if (recorder == nullptr) return;
  std::vector<NDArray> arrays;
  for (const NDArray* const input : inputs) arrays.push_back(*input);
  recorder->NoteFunction(op, arrays, {outputs...}, HandGradientOf(op, std::move(backward)));
}

// body(item) for each item, on the threads of kernels. What the first item that fails throws is thrown.
void ForEachItem(int64_t items, int64_t work_of_item, absl::FunctionRef<void(int64_t)> body);

template <typename Body>
void VisitType(DType dtype, Body body) {
  if (dtype == DType::kFloat32) {
    body(float{});
  } else {
    body(double{});
  }
}

// See LeastSquares.
double CutoffOf(std::optional<double> given, int64_t rows, int64_t columns, DType dtype);

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_ITEMS_H_
