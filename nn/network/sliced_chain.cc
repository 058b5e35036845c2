#include "tidepool/nn/network/sliced_chain.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/hand_gradient.h"
#include "tidepool/ndarray/kernel/example_sums.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/operand_checks.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/kept_for_gradient.h"
#include "tidepool/nn/layers/max_pool2d.h"

namespace tidepool::nn {
namespace {

constexpr char kProvider[] = "cpu";  // whose kernels promise the order of their sums

// An operand of a call that is not made.
struct Operand {
  std::vector<int64_t> dims, strides;
  TensorRef ref;

  explicit Operand(std::vector<int64_t> of) : dims(std::move(of)), strides(dims.size(), 1) {
    for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    ref.present = true;
    ref.rank = static_cast<int>(dims.size());
    ref.dims = dims.data();
    ref.strides = strides.data();
  }
};

// Whether kernels of that provider would run it.
bool IsPromised(OpCode op, absl::Span<const TensorRef> inputs, const TensorRef& output,
                const void* attributes) {
  const char* const asked = ScopedProvider::Current();
  KernelCall call{.op = op, .inputs = inputs, .outputs = {&output, 1}, .attributes = attributes};
  for (const Kernel& kernel : KernelRegistry::Find(op, DeviceType::kHost, DType::kFloat32)) {
    if (asked != nullptr && std::strcmp(asked, kernel.provider) != 0) continue;
    if (kernel.supports != nullptr && !kernel.supports(call)) continue;
    return std::strcmp(kernel.provider, kProvider) == 0;
  }
  return false;
}

}  // namespace

// All three calls of a convolution of so many images. Others choose by the shape.
bool SlicedChain::IsPromisedBy(const Step& step, int64_t batch) {
  const Shape &in = step.input, &out = step.output;
  const Operand x({batch, in[0], in[1], in[2]}), y({batch, out[0], out[1], out[2]});
  const Operand filter({out[2], step.kernel_height, step.kernel_width, in[2]}), bias({out[2]});
  TensorRef no_bias;
  const TensorRef forward[] = {x.ref, filter.ref, step.has_bias ? bias.ref : no_bias};
  const TensorRef of_input[] = {y.ref, filter.ref}, of_filter[] = {x.ref, y.ref};
  Conv2dAttributes plain = step.convolution;
  plain.relu = false;
  return IsPromised(OpCode::kConv2d, forward, y.ref, &step.convolution) &&
         IsPromised(OpCode::kConv2dGradInput, of_input, x.ref, &plain) &&
         IsPromised(OpCode::kConv2dGradFilter, of_filter, filter.ref, &plain);
}

// Of a pooling: images are apart in any of its kernels.
bool SlicedChain::IsPromisedFor(int64_t batch) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const Step& step) {
    return !step.is_convolution || IsPromisedBy(step, batch);
  });
}

SlicedChain::SlicedChain(absl::Span<const Layer* const> layers, absl::Span<const Shape> shapes) {
  int parameters = 0;
  for (size_t i = 0; i < layers.size() && why_not_.empty(); ++i) {
    Step step;
    const Shape& output = shapes[i + 1];
    step.input = shapes[i];
    step.output = output;
    if (const auto* const convolution = dynamic_cast<const Conv2D*>(layers[i])) {
      step.is_convolution = true;
      step.has_bias = convolution->has_bias();
      step.filter = parameters;
      step.convolution = convolution->attributes();
      step.convolution.relu = convolution->activation() == Activation::kRelu;
      const Shape filter = convolution->Parameters(shapes[i])[0].shape;
      step.kernel_height = filter[1];
      step.kernel_width = filter[2];
      parameters += step.has_bias ? 2 : 1;
      examples_at_once_ = std::lcm(examples_at_once_, PlanesSummedAtOnce(output[0], output[1]));
      if (!step.convolution.relu && convolution->activation() != Activation::kIdentity) {
        why_not_ = absl::StrCat("[", layers[i]->Describe(), "], expected relu or no function");
      } else if (step.convolution.groups != 1) {
        why_not_ = absl::StrCat("[", layers[i]->Describe(), "], expected one group");
      }
    } else if (const auto* const pooling = dynamic_cast<const MaxPool2D*>(layers[i])) {
      step.pooling = pooling->attributes();
    } else {
      why_not_ = absl::StrCat("[", layers[i]->Describe(), "], expected conv2d or max_pool2d");
    }
    steps_.push_back(step);
  }
  constexpr int64_t kLargeBatch = 256;
  if (!why_not_.empty()) {
    steps_.clear();
  } else if (!IsPromisedFor(examples_at_once_) || !IsPromisedFor(kLargeBatch)) {
    // Of a network that has a plan already the whole batch is run.
    why_not_ = "kernels of another backend than cpu, which promise no order of sums over examples";
  }
}

// Of each step, or the last one's alone.
std::vector<NDArray> SlicedChain::Outputs(absl::Span<const Step> steps, const NDArray& input,
                                          absl::Span<const NDArray> parameters, bool keeps) {
  std::vector<NDArray> outputs;
  outputs.reserve(steps.size());
  for (const Step& step : steps) {
    const NDArray& x = outputs.empty() ? input : outputs.back();
    const auto filter = static_cast<size_t>(step.filter);
    NDArray y = step.is_convolution
                    ? Conv2d(x, parameters[filter],
                             step.has_bias ? &parameters[filter + 1] : nullptr, step.convolution)
                    : MaxPool2d(x, step.pooling);
    if (!keeps) outputs.clear();
    outputs.push_back(std::move(y));
  }
  return outputs;
}

struct SlicedChain::Gradient final : HandGradient {
  std::vector<Step> steps;
  KeptForGradient input;
  std::vector<NDArray> parameters;
  int64_t slice = 1;

  void VisitKept(KeptVisit visit) override {
    visit("input", input.array, /*can_be_made_again=*/false);
  }

  void Run(absl::Span<const NDArray> dz, absl::Span<NDArray> found, bool is_last) override {
    input.Check("slices of the batch", "input");
    const NDArray& x = input.array;
    const int64_t batch = x.dim(0);
    const Place place = Place::CurrentOn(x.device());
    const bool has_dx = IsGradientUsed(0);
    const auto is_used = [](int parameter) { return IsGradientUsed(1 + parameter); };
    std::vector<NDArray> image_sums(steps.size());  // of biases' gradients
    for (size_t k = 0; k < steps.size(); ++k) {
      if (!steps[k].is_convolution) continue;
      const auto filter = static_cast<size_t>(steps[k].filter);
      if (is_used(steps[k].filter))
        found[1 + filter] = NDArray(parameters[filter].shape(), x.dtype(), place);
      if (steps[k].has_bias && is_used(steps[k].filter + 1))
        image_sums[k] = NDArray({batch, parameters[filter].dim(0)}, x.dtype(), place);
    }
    if (has_dx) found[0] = NDArray(x.shape(), x.dtype(), place);
    for (int64_t begin = 0; begin < batch; begin += slice) {
      const int64_t end = std::min(batch, begin + slice);
      RunSlice(x.Slice(0, begin, end), dz[0].Slice(0, begin, end), begin, end, found, image_sums);
    }
    for (size_t k = 0; k < steps.size(); ++k) {
      if (!image_sums[k].is_defined()) continue;
      const size_t bias = 1 + static_cast<size_t>(steps[k].filter) + 1;
      found[bias] = NDArray({image_sums[k].dim(1)}, x.dtype(), place);
      SumToLastAxisInto(image_sums[k], found[bias]);
    }
    if (is_last) input = KeptForGradient();
  }

  void RunSlice(const NDArray& x, const NDArray& dz, int64_t begin, int64_t end,
                absl::Span<NDArray> found, std::vector<NDArray>& image_sums) {
    std::vector<NDArray> outputs = Outputs(steps, x, parameters, /*keeps=*/true);
    NDArray gradient = dz;
    bool is_own = false, relu_done = false;
    for (size_t k = steps.size(); k-- > 0;) {
      const Step& step = steps[k];
      const NDArray& from = k > 0 ? outputs[k - 1] : x;
      const bool goes_on = k > 0 || found[0].is_defined();
      if (!step.is_convolution) {
        Pool2dAttributes pooling = step.pooling;
        // As a tape has it: the gradient of the ReLU before it in the same pass.
        pooling.relu_grad = relu_done = k > 0 && steps[k - 1].convolution.relu;
        if (k > 0 && steps[k - 1].is_convolution &&
            MayBeWrittenOver(OpCode::kMaxPool2dGrad, &pooling, 0, 0, x.device())) {
          // Over what the convolution made, which its gradients do not read.
          Dispatch(OpCode::kMaxPool2dGrad, {&from, &outputs[k], &gradient}, {&outputs[k - 1]},
                   &pooling);
          gradient = outputs[k - 1];
        } else {
          gradient = MaxPool2dGrad(from, outputs[k], gradient, pooling);
        }
        is_own = true;
        outputs[k] = NDArray();
        continue;
      }
      if (step.convolution.relu && !relu_done) {
        if (is_own) {
          ReluGradInto(outputs[k], gradient, gradient);
        } else {
          gradient = ReluGrad(outputs[k], gradient);
        }
      }
      relu_done = false;
      outputs[k] = NDArray();
      if (image_sums[k].is_defined()) {
        NDArray rows = image_sums[k].Slice(0, begin, end);
        SumInto(gradient, Axes({1, 2}), rows);
      }
      const auto filter = static_cast<size_t>(step.filter);
      NDArray& of_filter = found[1 + filter];
      Conv2dAttributes attributes = step.convolution;
      attributes.relu = false;
      if (of_filter.is_defined()) {
        attributes.accumulate = begin > 0;
        Conv2dGradFilterInto(from, gradient, of_filter, attributes);
        attributes.accumulate = false;
      }
      if (goes_on)
        gradient = Conv2dGradInput(gradient, parameters[filter], from.shape(), attributes);
      is_own = true;
    }
    if (!found[0].is_defined()) return;
    NDArray rows = found[0].Slice(0, begin, end);
    CopyInto(gradient, rows);
  }
};

NDArray SlicedChain::Run(const NDArray& input, absl::Span<const NDArray> parameters,
                         int64_t slice) const {
  const int64_t batch = input.dim(0);
  if (!IsPromisedFor(batch) || !IsPromisedFor(std::min(slice, batch)))
    slice = batch;  // a provider that a scope asks for, say
  auto* const gradient = new Gradient();
  HandGradientHandle handle(gradient);
  gradient->steps = steps_;
  gradient->parameters.assign(parameters.begin(), parameters.end());
  gradient->slice = slice;
  gradient->input = KeptForGradient(input);
  NDArray output;
  {
    const NoGradientScope by_hand;
    for (int64_t begin = 0; begin < batch; begin += slice) {
      const int64_t end = std::min(batch, begin + slice);
      const NDArray made =
          Outputs(steps_, input.Slice(0, begin, end), parameters, /*keeps=*/false).back();
      if (!output.is_defined()) {
        std::vector<int64_t> dims(made.shape().span().begin(), made.shape().span().end());
        dims[0] = batch;
        output = NDArray(Shape(dims), made.dtype(), Place::CurrentOn(made.device()));
      }
      NDArray rows = output.Slice(0, begin, end);
      CopyInto(made, rows);
    }
  }
  std::vector<NDArray> inputs = {input};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  SetGradient("slices of the batch", inputs, {&output, 1}, std::move(handle));
  return output;
}

}  // namespace tidepool::nn
