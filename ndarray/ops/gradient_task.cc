#include "tidepool/ndarray/ops/gradient_task.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/operand_checks.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/composed_gradients.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/shape_only_array.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using From = GradientOperand::From;

// Nobody else has a handle, and every element is one place.
bool IsSpare(const NDArray& array) {
  const Buffer* const buffer = array.buffer().get();
  return buffer != nullptr && buffer->references.load(std::memory_order_acquire) == 1 &&
         !buffer->imported && buffer->IsAlive() && array.is_dense();
}

bool IsLike(const NDArray& a, const NDArray& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() == b.device();
}

bool BroadcastsTo(const Shape& from, const Shape& to) {
  const int added = to.rank() - from.rank();
  for (int i = 0; i < from.rank(); ++i) {
    if (added < 0 || (from[i] != 1 && from[i] != to[added + i])) return false;
  }
  return true;
}

std::string Described(const NDArray& array) {
  return absl::StrCat(DTypeName(array.dtype()), " ", array.shape().ToString(), " on ",
                      DeviceName(array.device()));
}

// What a program's own function (AddGradient) returned for an input.
void CheckReturned(OpCode op, int input, const NDArray& found, const NDArray& of,
                   const NDArray& result) {
  const OperatorInfo& info = Info(op);
  if (!found.IsInScope()) {
    found.CheckAlive(absl::StrCat("gradient of ", info.name).c_str(),
                     OperandName(info.inputs, input).c_str());
  }
  const bool may_be_summed =
      !(of.shape() == result.shape()) && BroadcastsTo(of.shape(), result.shape());
  const bool has_shape =
      found.shape() == of.shape() || (may_be_summed && found.shape() == result.shape());
  if (has_shape && found.device() == of.device() && IsFloating(found.dtype())) return;
  ThrowInvalidArgument(absl::StrCat(
      "Op [", info.name, "]: its gradient function returned ", Described(found), " for ",
      OperandName(info.inputs, input), ", expected ", Described(of),
      may_be_summed ? absl::StrCat(", or ", result.shape().ToString(), " to be summed") : ""));
}

}  // namespace

// One gradient operator of a task.
struct RuleRun {
  GradientTask& task;
  const GradientRule& rule;
  bool is_last;           // of the task: the gradients of outputs are read by no other
  OperandSet read_later;  // by rules behind this one

  NDArray* OperandAt(const GradientOperand& operand) const {
    const auto index = static_cast<size_t>(operand.index);
    return operand.from == From::kInput    ? &task.inputs[index]
           : operand.from == From::kOutput ? &task.outputs[index]
                                           : &task.output_gradients[index];
  }

  // Whether the rule's result may be written over that operand, which nobody needs afterwards.
  bool MayTake(const GradientOperand& operand, const NDArray& array) const {
    if (operand.from == From::kOutputGradient ? !is_last : (read_later & BitOf(operand)) != 0) {
      return false;
    }
    return task.may_write_over && IsSpare(array);
  }
  static OperandSet BitOf(const GradientOperand& operand) {
    return operand.from == From::kInput    ? InputBit(operand.index)
           : operand.from == From::kOutput ? OutputBit(operand.index)
                                           : 0;
  }

  void Run() const {
    std::vector<NDArray>&made = task.made_, &unwanted = task.unwanted_;
    std::vector<const NDArray*>& inputs = task.input_pointers_;
    std::vector<NDArray*>& outputs = task.destinations_;
    const absl::Cleanup clear = [&] {
      made.clear();
      unwanted.clear();
    };
    inputs.clear();
    outputs.clear();
    // Pointers to elements are taken.
    made.reserve(rule.inputs.size());
    unwanted.reserve(rule.with_respect_to.size());
    for (const GradientOperand& operand : rule.inputs) {
      const NDArray* array = OperandAt(operand);
      if (!array->is_defined()) {
        array = nullptr;
        if (!operand.optional && operand.from == From::kOutputGradient) {
          const NDArray& z = task.outputs[static_cast<size_t>(operand.index)];
          made.push_back(Zeros(z.shape(), z.dtype(), Place::Scratch(z.device())));
          array = &made.back();
        }
      }
      inputs.push_back(array);
    }
    // Gradient operators that are written over an operand have the operator's own attributes where it hangs on them.
    const AttributesRef own(task.attributes, Info(task.op).attributes);
    bool taken = false;
    for (const int input : rule.with_respect_to) {
      const NDArray& of = task.inputs[static_cast<size_t>(input)];
      NDArray& result = task.results[static_cast<size_t>(input)];
      if ((task.wanted & InputBit(input)) == 0) {
        unwanted.push_back(NDArray(of.shape(), of.dtype(), Place::Scratch(of.device())));
        outputs.push_back(&unwanted.back());
        continue;
      }
      if (!result.is_defined() && !taken) {
        for (size_t i = 0; i < rule.inputs.size(); ++i) {
          const NDArray* const operand = inputs[i];
          if (operand == nullptr || !IsLike(*operand, of) || operand != OperandAt(rule.inputs[i]) ||
              !MayBeWrittenOver(rule.gradient, own, static_cast<int>(i),
                                static_cast<int>(outputs.size()), of.device()) ||
              !MayTake(rule.inputs[i], *operand)) {
            continue;
          }
          result = *operand;
          taken = true;
          break;
        }
      }
      if (!result.is_defined())
        result = NDArray(of.shape(), of.dtype(), Place::CurrentOn(of.device()));
      outputs.push_back(&result);
    }
    const std::optional<double> weight =
        rule.of_sum ? WeightOfAll(task.output_gradients[0]) : std::nullopt;
    const LossGradAttributes loss{weight.value_or(1)};
    const CrossEntropyGradAttributes entropy{weight.value_or(1)};
    Pool2dAttributes pooling;
    AttributesRef attributes = AttributesOf(loss, entropy);
    const bool is_weighed =
        weight.has_value() && (attributes.data() == &loss || attributes.data() == &entropy);
    if (task.relu_after) {
      pooling = *static_cast<const Pool2dAttributes*>(task.attributes);
      pooling.relu_grad = true;
      attributes = &pooling;
    }
    Dispatch(rule.gradient, inputs, absl::MakeConstSpan(outputs), attributes);
    if (!rule.of_sum || is_weighed) return;
    for (const int input : rule.with_respect_to) {
      NDArray& result = task.results[static_cast<size_t>(input)];
      if ((task.wanted & InputBit(input)) != 0) Weigh(result);
    }
  }

  // The operator's own, or, of a loss, a scale of 1.
  AttributesRef AttributesOf(const LossGradAttributes& loss,
                             const CrossEntropyGradAttributes& entropy) const {
    const AttributesType type = Info(rule.gradient).attributes, own = Info(task.op).attributes;
    if (type == AttributesType::Of<NoAttributes>()) return {};
    if (type == own) return {task.attributes, own};
    if (rule.of_sum && type == AttributesType::Of<LossGradAttributes>()) return &loss;
    if (rule.of_sum && type == AttributesType::Of<CrossEntropyGradAttributes>()) return &entropy;
    ThrowInvalidArgument(absl::StrCat("Op [", Info(rule.gradient).name, "], gradient of [",
                                      Info(task.op).name, "]: it takes attributes ", type.name(),
                                      ", expected those of [", Info(task.op).name, "] or none"));
  }

  // Of every row's loss, where it is one power of two that the host has, as of the mean of 32: the gradient operator takes it
  // along, and there is no second pass. Other numbers would round elsewhere than in a pass of their own, which devices
  // make. A tape around this one records that pass.
  static std::optional<double> WeightOfAll(const NDArray& dz) {
    if (dz.device() != Host() || !dz.buffer() || CallRecorder::Current() != nullptr)
      return std::nullopt;
    for (int i = 0; i < dz.rank(); ++i) {
      if (dz.dim(i) != 1 && dz.strides()[i] != 0) return std::nullopt;
    }
    dz.CheckAlive("gradient", "dZ");
    double weight = 0;
    if (dz.dtype() == DType::kFloat32) {
      weight = *reinterpret_cast<const float*>(dz.raw_data());
    } else if (dz.dtype() == DType::kFloat64) {
      weight = *reinterpret_cast<const double*>(dz.raw_data());
    }
    int exponent = 0;
    return std::frexp(weight, &exponent) == 0.5 ? std::optional<double>(weight) : std::nullopt;
  }

  // By the gradient of each row's loss: gradients of losses are of their sum.
  void Weigh(NDArray& gradient) const {
    const NDArray& dz = task.output_gradients[0];
    int64_t dims[kMaxRank];
    const int rank = gradient.rank();
    for (int i = 0; i < rank; ++i) dims[i] = i < dz.rank() ? dz.dim(i) : 1;
    const NDArray weights =
        dz.ReshapeOrCopy(Shape(absl::MakeConstSpan(dims, static_cast<size_t>(rank))));
    if (task.may_write_over) {
      MultiplyInto(gradient, weights, gradient);
    } else {
      gradient = gradient * weights;
    }
  }
};

void GradientTask::Release(OperandSet operands) {
  const auto release = [&](std::vector<NDArray>& arrays, int first) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      if ((operands >> (first + static_cast<int>(i)) & 1) == 0 || !arrays[i].buffer()) continue;
      // Shape and type stay to be asked for.
      NDArray& array = arrays[i];
      array = ShapeOnlyArray(array.shape(), array.dtype(), array.device());
    }
  };
  release(inputs, 0);
  release(outputs, kMostInputs);
}

void GradientTask::RunRules(const GradientPlan& plan) {
  const std::vector<GradientRule>& rules = plan.rules;
  if (!output_gradients[0].is_defined() && rules[0].of_sum) {
    results.assign(inputs.size(), NDArray());
    return;
  }
  if (output_gradients[0].is_defined() && !relu_done && EndsWithRelu(op, attributes)) {
    NDArray& dz = output_gradients[0];
    if (may_write_over && IsSpare(dz)) {
      ReluGradInto(outputs[0], dz, dz);
    } else {
      dz = ReluGrad(outputs[0], dz);
    }
    Release(OutputBit(0));
  }
  // What the input is multiplied by comes last: the gradients of parameters need the input, which goes before there is a
  // gradient of it.
  absl::InlinedVector<const GradientRule*, 4> order;
  const auto is_wanted = [&](const GradientRule& rule) {
    for (const int input : rule.with_respect_to) {
      if ((wanted & InputBit(input)) != 0) return true;
    }
    return false;
  };
  for (const GradientRule& rule : rules) {
    if (is_wanted(rule)) order.insert(order.begin(), &rule);
  }
  const bool wants_bias = plan.bias >= 0 && (wanted & InputBit(plan.bias)) != 0 &&
                          inputs[static_cast<size_t>(plan.bias)].is_defined() &&
                          output_gradients[0].is_defined();
  const auto bias = [&] {
    const auto b = static_cast<size_t>(plan.bias);
    NDArray* const destination = results[b].is_defined() ? &results[b] : nullptr;
    // Example by example first (ndarray/kernel/example_sums.h).
    const NDArray dz =
        op == OpCode::kConv2d ? Sum(output_gradients[0], Axes({1, 2})) : output_gradients[0];
    results[b] = SumTo(dz, inputs[b].shape(), destination);
  };
  if (order.empty() && wants_bias) bias();
  for (size_t r = 0; r < order.size(); ++r) {
    const bool is_last = r + 1 == order.size();
    if (is_last && wants_bias) bias();
    OperandSet later = 0;
    for (size_t behind = r + 1; behind < order.size(); ++behind) {
      for (const GradientOperand& operand : order[behind]->inputs) later |= RuleRun::BitOf(operand);
    }
    RuleRun{*this, *order[r], is_last, later}.Run();
    Release(~later);
  }
  OperandSet computed = wants_bias ? InputBit(plan.bias) : 0;
  for (const GradientRule* const rule : order) {
    for (const int input : rule->with_respect_to) computed |= InputBit(input);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if ((computed & wanted & InputBit(static_cast<int>(i))) == 0) results[i] = NDArray();
  }
}

void GradientTask::CheckComplete() const {
  if (!output_gradients[0].is_defined()) return;  // nothing flows
  for (size_t i = 0; i < inputs.size(); ++i) {
    if ((wanted & InputBit(static_cast<int>(i))) == 0 || results[i].is_defined()) continue;
    ThrowUnimplemented(
        absl::StrCat("Op [", Info(op).name, "]: there is no gradient with respect to its ",
                     OperandName(Info(op).inputs, static_cast<int>(i)), ", and one is wanted"));
  }
}

void GradientTask::RunFunction(const GradientPlan& plan) {
  if (!output_gradients[0].is_defined()) {
    results.assign(inputs.size(), NDArray());
    return;
  }
  NDArray& dz = output_gradients[0];
  if (EndsWithRelu(op, attributes) && !relu_done) {
    if (may_write_over && IsSpare(dz)) {
      ReluGradInto(outputs[0], dz, dz);
    } else {
      dz = ReluGrad(outputs[0], dz);
    }
    Release(OutputBit(0));
  }
  input_pointers_.clear();
  output_pointers_.clear();
  destinations_.clear();
  for (const NDArray& input : inputs)
    input_pointers_.push_back(input.is_defined() ? &input : nullptr);
  for (const NDArray& output : outputs) output_pointers_.push_back(&output);
  for (NDArray& result : results) destinations_.push_back(result.is_defined() ? &result : nullptr);
  const auto release = [](const GradientCall& call, OperandSet operands) {
    static_cast<GradientTask*>(call.released_by)->Release(operands);
  };
  const GradientCall call{op,
                          input_pointers_,
                          output_pointers_,
                          dz,
                          attributes,
                          wanted,
                          destinations_,
                          may_write_over && IsSpare(dz) ? &dz : nullptr,
                          release,
                          this};
  GradientResults found = plan.function(call);
  const bool is_own = static_cast<int>(op) >= kOpCodes;
  if (is_own && found.size() > inputs.size()) {
    ThrowInvalidArgument(absl::StrCat("Op [", Info(op).name, "]: its gradient function returned ",
                                      found.size(), " gradients, expected at most ", inputs.size(),
                                      ", one for each input (", Info(op).inputs, ")"));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const NDArray& input = inputs[i];
    NDArray& result = results[i];
    if (i >= found.size() || !found[i].is_defined() ||
        (wanted & InputBit(static_cast<int>(i))) == 0 || !input.is_defined() ||
        !IsFloating(input.dtype())) {
      result = NDArray();
      continue;
    }
    if (is_own) CheckReturned(op, static_cast<int>(i), found[i], input, outputs[0]);
    NDArray& sum = found[i];
    if (!(sum.shape() == input.shape()))
      sum = SumTo(sum, input.shape(), result.is_defined() ? &result : nullptr);
    if (sum.dtype() != input.dtype()) sum = Cast(sum, input.dtype());
    result = std::move(sum);
  }
}

void GradientTask::Run(const GradientPlan& plan) {
  results.resize(inputs.size());
  // Of a sum, say, every element is one: products would copy it for each operand they are asked for.
  if (Info(op).heavy() && output_gradients[0].is_defined() && !output_gradients[0].is_dense()) {
    output_gradients[0] =
        output_gradients[0].CopyTo(Place::CurrentOn(output_gradients[0].device()));
  }
  if (plan.kind == GradientPlan::Kind::kRules) {
    // A square's two sides are alike.
    const OperandSet asked = wanted;
    const bool of_targets = op == OpCode::kSquaredError && (asked & InputBit(1)) != 0;
    if (of_targets) wanted |= InputBit(0);
    RunRules(plan);
    if (of_targets && results[0].is_defined()) results[1] = Negate(results[0]);
    wanted = asked;
    return is_strict ? CheckComplete() : void();
  }
  if (plan.kind == GradientPlan::Kind::kFunction) {
    RunFunction(plan);
    return is_strict ? CheckComplete() : void();
  }
  ThrowUnimplemented(absl::StrCat("Op [", Info(op).name, "]: it has no gradients; its row says \"",
                                  Info(op).gradient, "\" (ndarray/kernel/operator_list.inc)"));
}

void GradientTask::Clear() {
  inputs.clear();
  outputs.clear();
  output_gradients.clear();
  results.clear();
  relu_done = relu_after = false;
}

}  // namespace tidepool
