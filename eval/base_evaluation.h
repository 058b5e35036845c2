// What all evaluations have in common: how they are given a batch, are merged, sent and printed.
//
//   EvaluationBatch batch;
//   batch.scores = scores;      // [rows, columns], row-major, on the host
//   batch.labels = labels;      // [rows] classes or [rows, columns]
//   batch.columns = 10;
//   evaluation.Add(batch);
//
// A row is an example, or a position of a sequence: scores [batch, length, classes] are batch *
// length rows of `classes` columns.
//
// Weights are what masks are: 0 leaves out (whatever label and score are there, NaN too), 1 counts,
// 2 counts twice. Evaluations add up so that the order does not matter: added in other batches, on
// several threads or ranks and merged, they are the same to the last bit.
#ifndef TIDEPOOL_EVAL_BASE_EVALUATION_H_
#define TIDEPOOL_EVAL_BASE_EVALUATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool {

// Numbers of one of a few types that somebody else owns, read as double.
class NumberView {
 public:
  NumberView() = default;
  NumberView(absl::Span<const float> v)
      : data_(v.data()), size_(v.size()), type_(Type::kFloat) {}  // NOLINT
  NumberView(absl::Span<const double> v)
      : data_(v.data()), size_(v.size()), type_(Type::kDouble) {}  // NOLINT
  NumberView(absl::Span<const int64_t> v)
      : data_(v.data()), size_(v.size()), type_(Type::kInt64) {}  // NOLINT
  NumberView(absl::Span<const int32_t> v)
      : data_(v.data()), size_(v.size()), type_(Type::kInt32) {}  // NOLINT
  NumberView(absl::Span<const bool> v)
      : data_(v.data()), size_(v.size()), type_(Type::kBool) {}                      // NOLINT
  NumberView(const std::vector<float>& v) : NumberView(absl::MakeConstSpan(v)) {}    // NOLINT
  NumberView(const std::vector<double>& v) : NumberView(absl::MakeConstSpan(v)) {}   // NOLINT
  NumberView(const std::vector<int64_t>& v) : NumberView(absl::MakeConstSpan(v)) {}  // NOLINT
  NumberView(const std::vector<int32_t>& v) : NumberView(absl::MakeConstSpan(v)) {}  // NOLINT

  // The number of numbers, and the one at `i` below it (not checked) as a double.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  double operator[](size_t i) const {
    switch (type_) {
      case Type::kFloat:
        return static_cast<const float*>(data_)[i];
      case Type::kDouble:
        return static_cast<const double*>(data_)[i];
      case Type::kInt64:
        return static_cast<double>(static_cast<const int64_t*>(data_)[i]);
      case Type::kInt32:
        return static_cast<const int32_t*>(data_)[i];
      case Type::kBool:
        return static_cast<const bool*>(data_)[i];
    }
    return 0;
  }

 private:
  enum class Type : uint8_t { kFloat, kDouble, kInt64, kInt32, kBool };
  const void* data_ = nullptr;
  size_t size_ = 0;
  Type type_ = Type::kFloat;
};

// Of the host, row-major. What it views must live for the call only.
struct EvaluationBatch {
  NumberView scores;  // [rows, columns]: what the network says
  NumberView labels;  // [rows], the class of each row, or [rows, columns]: what is true
  // None: all 1. Else of a shape that [rows, columns] begins with, or that the rows' own shape
  // begins with ([batch] for sequences [batch, length]): each weighs the scores below it. From 0 to
  // 2^20.
  NumberView weights;
  int64_t columns = 1;
};

class BaseEvaluation {
 public:
  virtual ~BaseEvaluation() = default;

  // Throws kInvalidArgument naming row, column, found and expected; nothing was added then.
  virtual void Add(const EvaluationBatch& batch) = 0;
  // As if what the other one, of the same kind and configuration, was given had been added here.
  // `state` is its Serialize(): bytes for another process, of whatever byte order. Throws kDataLoss
  // naming the byte where it is no such state, kInvalidArgument where it is of another kind or
  // configuration; nothing has changed then.
  virtual void MergeSerialized(absl::string_view state) = 0;
  virtual std::string Serialize() const = 0;
  // As made.
  virtual void Reset() = 0;
  // What a person wants to read. Ends with a newline.
  virtual std::string Report() const = 0;

 protected:
  BaseEvaluation() = default;
  BaseEvaluation(const BaseEvaluation&) = default;
  BaseEvaluation& operator=(const BaseEvaluation&) = default;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_BASE_EVALUATION_H_
