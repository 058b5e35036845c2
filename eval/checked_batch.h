// An EvaluationBatch whose sizes and numbers were checked: for evaluations, which add after it and
// so add all or nothing.
#ifndef TIDEPOOL_EVAL_CHECKED_BATCH_H_
#define TIDEPOOL_EVAL_CHECKED_BATCH_H_

#include <cstdint>

#include "tidepool/eval/base_evaluation.h"

namespace tidepool {

// What scores may be. NaN is refused always.
enum class ScoresAre {
  kNumbers,  // the infinities too
  kShares,   // 0 to 1
  kFinite,   // of a size up to 1e100, labels likewise
};

// What labels must be.
enum class LabelsAre {
  kClasses,  // [rows] of 0..columns-1, or [rows, columns] whose largest is the class, above 0
  kBinary,   // [rows, columns] of 0 and 1
  kValues,   // [rows, columns] of finite numbers
};

class CheckedBatch {
 public:
  // The batch must outlive this. `who` begins messages; `columns` is what is expected.
  CheckedBatch(const EvaluationBatch& batch, const char* who, int64_t columns, ScoresAre scores,
               LabelsAre labels, bool weights_by_column);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  double score(int64_t row, int64_t column) const { return batch_.scores[row * columns_ + column]; }
  double label(int64_t row, int64_t column) const { return batch_.labels[row * columns_ + column]; }
  // Of classes.
  int64_t label_class(int64_t row) const;
  double weight(int64_t row, int64_t column = 0) const {
    return batch_.weights.empty() ? 1 : batch_.weights[(row * columns_ + column) / per_weight_];
  }
  // The column of the largest score, the first of equal ones.
  int64_t Largest(int64_t row) const;

 private:
  void CheckSizes(bool weights_by_column);
  void CheckRow(int64_t row, ScoresAre scores, LabelsAre labels) const;

  const EvaluationBatch& batch_;
  const char* const who_;
  const int64_t columns_;
  int64_t rows_ = 0;
  int64_t per_weight_ = 1;  // scores that have a weight in common
  bool classes_given_ = false;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_CHECKED_BATCH_H_
