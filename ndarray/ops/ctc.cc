#include "tidepool/ndarray/ops/ctc.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

struct Operands {
  const NDArray &x, &labels, &input_lengths, &label_lengths;
};

void CheckLengths(const char* op, const NDArray& labels, const NDArray& input_lengths,
                  const NDArray& label_lengths) {
  CheckRank(op, "labels", labels, 2);
  CheckDType(op, "labels", labels, DType::kInt64);
  for (const auto& [name, lengths] :
       {std::pair{"input_lengths", &input_lengths}, {"label_lengths", &label_lengths}}) {
    CheckShape(op, name, *lengths, {labels.dim(0)});
    CheckDType(op, name, *lengths, DType::kInt64);
  }
}

void CheckShapes(const char* op, const Operands& of, const CtcAttributes& attributes) {
  CheckRank(op, "log_probabilities", of.x, 3);
  if (of.x.dtype() != DType::kFloat64) CheckDType(op, "log_probabilities", of.x, DType::kFloat32);
  CheckLengths(op, of.labels, of.input_lengths, of.label_lengths);
  CheckShape(op, "labels", of.labels, {of.x.dim(0), of.labels.dim(1)});
  if (of.x.dim(0) > 0 && (attributes.blank < 0 || attributes.blank >= of.x.dim(2))) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: blank is ", attributes.blank,
                                      ", expected one of ", of.x.dim(2), " classes"));
  }
}

// One example's, as CheckCtcLabels.
void CheckExample(int64_t example, const int64_t* labels, int64_t frames, int64_t count,
                  int64_t most_frames, int64_t most_labels, int64_t classes,
                  const CtcAttributes& attributes) {
  const auto refuse = [&](const std::string& what) {
    ThrowInvalidArgument(absl::StrCat("Op [ctc_loss]: example ", example, ": ", what));
  };
  if (frames < 0 || frames > most_frames)
    refuse(absl::StrCat("input length ", frames, ", expected 0 to ", most_frames));
  if (count < 0 || count > most_labels)
    refuse(absl::StrCat("label length ", count, ", expected 0 to ", most_labels));
  int64_t needed = count;
  for (int64_t i = 0; i < count; ++i) {
    if (labels[i] < 0 || labels[i] >= classes || labels[i] == attributes.blank) {
      refuse(absl::StrCat("label ", i, " is ", labels[i], ", expected 0 to ", classes - 1,
                          " without the blank, ", attributes.blank));
    }
    if (i > 0 && labels[i] == labels[i - 1]) ++needed;
  }
  if (needed > frames && !attributes.zero_infinity) {
    refuse(absl::StrCat("its ", count, " labels need ", needed, " frames and it has ", frames,
                        "; expected as many, or zero_infinity"));
  }
}

}  // namespace

void CheckCtcLabels(const NDArray& labels, const NDArray& input_lengths,
                    const NDArray& label_lengths, int64_t frames, int64_t classes,
                    const CtcAttributes& attributes) {
  CheckOperands(OpCode::kCtcLoss, {nullptr, &labels, &input_lengths, &label_lengths});
  CheckLengths("ctc_loss", labels, input_lengths, label_lengths);
  if (internal::KernelsAreOff()) return;  // nobody has computed the lengths
  const std::vector<int64_t> all = labels.ToVector<int64_t>(),
                             inputs = input_lengths.ToVector<int64_t>(),
                             counts = label_lengths.ToVector<int64_t>();
  for (int64_t b = 0; b < labels.dim(0); ++b) {
    const auto i = static_cast<size_t>(b);
    CheckExample(b, all.data() + b * labels.dim(1), inputs[i], counts[i], frames, labels.dim(1),
                 classes, attributes);
  }
}

NDArray CtcLoss(const NDArray& log_probabilities, const NDArray& labels,
                const NDArray& input_lengths, const NDArray& label_lengths,
                const CtcAttributes& attributes, Labels known) {
  const OpCode op = OpCode::kCtcLoss;
  CheckOperands(op, {&log_probabilities, &labels, &input_lengths, &label_lengths});
  CheckShapes(Info(op).name, {log_probabilities, labels, input_lengths, label_lengths}, attributes);
  if (known != Labels::kChecked) {
    CheckCtcLabels(labels, input_lengths, label_lengths, log_probabilities.dim(1),
                   log_probabilities.dim(2), attributes);
  }
  NDArray loss({log_probabilities.dim(0)}, log_probabilities.dtype(),
               ResultPlace(op, {&log_probabilities, &labels, &input_lengths, &label_lengths}));
  Dispatch(op, {&log_probabilities, &labels, &input_lengths, &label_lengths}, {&loss}, &attributes);
  return loss;
}

NDArray CtcLossGrad(const NDArray& log_probabilities, const NDArray& labels,
                    const NDArray& input_lengths, const NDArray& label_lengths,
                    const NDArray& loss_gradient, const CtcAttributes& attributes) {
  const OpCode op = OpCode::kCtcLossGrad;
  CheckOperands(op, {&log_probabilities, &labels, &input_lengths, &label_lengths, &loss_gradient});
  CheckShapes(Info(op).name, {log_probabilities, labels, input_lengths, label_lengths}, attributes);
  CheckShape(Info(op).name, "loss_gradient", loss_gradient, {log_probabilities.dim(0)});
  CheckDType(Info(op).name, "loss_gradient", loss_gradient, log_probabilities.dtype());
  NDArray gradient(log_probabilities.shape(), log_probabilities.dtype(),
                   ResultPlace(op, {&log_probabilities, &labels, &input_lengths, &label_lengths}));
  Dispatch(op, {&log_probabilities, &labels, &input_lengths, &label_lengths, &loss_gradient},
           {&gradient}, &attributes);
  return gradient;
}

}  // namespace tidepool
