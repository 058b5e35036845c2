#include "tidepool/backends/onednn/convolution.h"

#include <dnnl.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/backends/onednn/one_thread.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

namespace tidepool::onednn {
namespace {

using dnnl::memory;
using Dims = memory::dims;

// Measured with malloc's own counters over the shapes of LeNet and ResNet: 20 to 32 KiB.
constexpr int64_t kBytesPerPrimitive = 26 << 10;

const dnnl::engine& Engine() {
  static const dnnl::engine* const engine = [] {
    // oneDNN keeps primitives itself, up to 1024 of them, out of sight. Ours are in the ledger and
    // go when memory is short; whoever wants oneDNN's cache too says so in the environment.
    if (std::getenv("DNNL_PRIMITIVE_CACHE_CAPACITY") == nullptr &&
        std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == nullptr) {
      dnnl::set_primitive_cache_capacity(0);
    }
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

void Translate(const char* what, absl::FunctionRef<void()> call) {
  try {
    call();
  } catch (const dnnl::error& error) {
    const std::string message =
        absl::StrCat("oneDNN: ", what, " returned status ", static_cast<int>(error.status), " (",
                     error.what(), ")");
    if (error.status == dnnl_out_of_memory) {
      ThrowOutOfMemory({Host(), nullptr, 0, "an operator"}, "oneDNN", message,
                       MemoryTracker::Global().Snapshot().ToString());
    }
    ThrowInternal(message);
  }
}

memory::desc ImageDesc(int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return memory::desc({batch, channels, height, width}, memory::data_type::f32,
                      memory::format_tag::nhwc);
}

Dims FilterDims(const ConvolutionShape& s) {
  const int64_t channels = s.channels / s.groups;
  if (s.groups == 1) return {s.filters, channels, s.kernel_height, s.kernel_width};
  return {s.groups, s.filters / s.groups, channels, s.kernel_height, s.kernel_width};
}

// Row-major [filters, kernel height, kernel width, channels / groups].
memory::desc PlainFilterDesc(const ConvolutionShape& s) {
  const int64_t channels = s.channels / s.groups;
  const int64_t row = s.kernel_width * channels, filter = s.kernel_height * row;
  Dims strides = {filter, 1, row, channels};
  if (s.groups != 1) strides.insert(strides.begin(), s.filters / s.groups * filter);
  return memory::desc(FilterDims(s), memory::data_type::f32, strides);
}

bool IsOptimised(const dnnl::primitive_desc_base& primitive) {
  return std::strncmp(primitive.impl_info_str(), "ref", 3) != 0;
}

// Made anew for each use: copies of an attribute object are the same object.
dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// oneDNN 2.6 gathers the input of 1x1 convolutions with strides first, and of channels that do not
// fill a vector writes behind the end of that memory.
bool IsBroken(const ConvolutionShape& s) {
  return s.kernel_height == 1 && s.kernel_width == 1 && (s.stride_height > 1 || s.stride_width > 1);
}

// ---- what versions 2 and 3 of oneDNN spell in different ways ----

// How a filter goes over an image.
struct Window {
  Dims strides, dilations, pads, end_pads;
};

dnnl::convolution_forward::primitive_desc ForwardPlan(dnnl::prop_kind kind,
                                                      const memory::desc& input,
                                                      const memory::desc& filter,
                                                      const memory::desc& bias,
                                                      const memory::desc& output, const Window& w,
                                                      const dnnl::primitive_attr& attr) {
  using Forward = dnnl::convolution_forward;
  const auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return Forward::primitive_desc(Engine(), kind, direct, input, filter, bias, output, w.strides,
                                 w.dilations, w.pads, w.end_pads, attr, /*allow_empty=*/true);
#else
  return Forward::primitive_desc(Forward::desc(kind, direct, input, filter, bias, output, w.strides,
                                               w.dilations, w.pads, w.end_pads),
                                 attr, Engine(),
                                 /*allow_empty=*/true);
#endif
}

// Of either gradient.
template <typename Backward>
typename Backward::primitive_desc BackwardPlan(
    const memory::desc& input, const memory::desc& filter, const memory::desc& output,
    const Window& w, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& forward) {
  using Plan = typename Backward::primitive_desc;
  const auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return Plan(Engine(), direct, input, filter, output, w.strides, w.dilations, w.pads, w.end_pads,
              forward, attr,
              /*allow_empty=*/true);
#else
  return Plan(typename Backward::desc(direct, input, filter, output, w.strides, w.dilations, w.pads,
                                      w.end_pads),
              attr, Engine(), forward, /*allow_empty=*/true);
#endif
}

memory Operand(const memory::desc& desc, const void* data) {
  return memory(desc, Engine(), const_cast<void*>(data));
}

}  // namespace

bool ConvolutionShape::operator==(const ConvolutionShape& other) const {
  return std::memcmp(this, &other, sizeof(*this)) == 0;
}

struct Convolution::Primitives {
  memory::desc input, output, bias, plain_filter, own_filter, scratchpad, export_scratchpad,
      add_scratchpad;
  dnnl::primitive convolution, import_filter, export_filter, add_filter;
  int primitives = 0;
  int64_t clamped = 0;  // elements of the output that a ReLU goes over

  bool Make(const ConvolutionShape& s);
  void MakeExport();
  size_t ScratchpadBytes() const {
    return std::max(
        {scratchpad.get_size(), export_scratchpad.get_size(), add_scratchpad.get_size()});
  }
};

bool Convolution::Primitives::Make(const ConvolutionShape& s) {
  if (IsBroken(s)) return false;
  const dnnl::engine& engine = Engine();
  const auto any = memory::desc(FilterDims(s), memory::data_type::f32, memory::format_tag::any);
  const Window window = {{s.stride_height, s.stride_width},
                         {s.dilation_height - 1, s.dilation_width - 1},
                         {s.pad_top, s.pad_left},
                         {s.pad_bottom, s.pad_right}};
  input = ImageDesc(s.batch, s.channels, s.in_height, s.in_width);
  output = ImageDesc(s.batch, s.filters, s.out_height, s.out_width);
  plain_filter = PlainFilterDesc(s);
  if (s.bias != 0) {
    bias = memory::desc({s.filters}, memory::data_type::f32, memory::format_tag::x);
  }
  if (s.relu != 0) clamped = s.OutputElements();
  const dnnl::primitive_attr attr = UserScratchpad();
  const dnnl::convolution_forward::primitive_desc forward =
      ForwardPlan(s.kind == ConvolutionKind::kForward ? dnnl::prop_kind::forward_inference
                                                      : dnnl::prop_kind::forward_training,
                  input, any, bias, output, window, attr);
  if (!forward) return false;
  if (s.kind == ConvolutionKind::kForward) {
    if (!IsOptimised(forward)) return false;
    own_filter = forward.weights_desc();
    scratchpad = forward.scratchpad_desc();
    convolution = dnnl::convolution_forward(forward);
  } else if (s.kind == ConvolutionKind::kGradInput) {
    using Backward = dnnl::convolution_backward_data;
    const auto backward = BackwardPlan<Backward>(input, any, output, window, attr, forward);
    if (!backward || !IsOptimised(backward)) return false;
    own_filter = backward.weights_desc();
    scratchpad = backward.scratchpad_desc();
    convolution = Backward(backward);
  } else {
    using Backward = dnnl::convolution_backward_weights;
    const auto backward = BackwardPlan<Backward>(input, any, output, window, attr, forward);
    if (!backward || !IsOptimised(backward)) return false;
    own_filter = backward.diff_weights_desc();
    scratchpad = backward.scratchpad_desc();
    convolution = Backward(backward);
  }
  primitives = 1;
  if (s.kind == ConvolutionKind::kGradFilter) {
    MakeExport();
  } else {
    const dnnl::reorder::primitive_desc reorder(engine, plain_filter, engine, own_filter, attr);
    export_scratchpad = reorder.scratchpad_desc();
    import_filter = dnnl::reorder(reorder);
    primitives += 1;
  }
  return true;
}

void Convolution::Primitives::MakeExport() {
  const dnnl::engine& engine = Engine();
  const dnnl::primitive_attr set_attr = UserScratchpad();
  dnnl::primitive_attr add_attr = UserScratchpad();
  dnnl::post_ops sum;
  sum.append_sum(1.0f);
  add_attr.set_post_ops(sum);
  const dnnl::reorder::primitive_desc set(engine, own_filter, engine, plain_filter, set_attr);
  const dnnl::reorder::primitive_desc add(engine, own_filter, engine, plain_filter, add_attr);
  export_scratchpad = set.scratchpad_desc();
  add_scratchpad = add.scratchpad_desc();
  export_filter = dnnl::reorder(set);
  add_filter = dnnl::reorder(add);
  primitives += 2;
}

namespace {

void Execute(const dnnl::primitive& primitive, const memory::desc& scratchpad_desc,
             void* scratchpad, std::unordered_map<int, memory> operands) {
  const OneThread one_thread;
  Translate("executing a primitive", [&] {
    if (scratchpad_desc.get_size() > 0) {
      operands.emplace(DNNL_ARG_SCRATCHPAD, Operand(scratchpad_desc, scratchpad));
    }
    dnnl::stream stream(Engine());
    primitive.execute(stream, operands);
    stream.wait();
  });
}

}  // namespace

Convolution::Convolution(std::unique_ptr<Primitives> primitives)
    : primitives_(std::move(primitives)) {}

Convolution::~Convolution() = default;

std::shared_ptr<const Convolution> Convolution::Make(const ConvolutionShape& shape) {
  const OneThread one_thread;
  auto primitives = std::make_unique<Primitives>();
  bool made = false;
  Translate("making a convolution", [&] { made = primitives->Make(shape); });
  if (!made) return nullptr;
  return std::shared_ptr<const Convolution>(new Convolution(std::move(primitives)));
}

size_t Convolution::filter_bytes() const { return primitives_->own_filter.get_size(); }

size_t Convolution::scratchpad_bytes() const { return primitives_->ScratchpadBytes(); }

bool Convolution::HasFilterLayoutOf(const Convolution& other) const {
  return primitives_->own_filter == other.primitives_->own_filter;
}

int64_t Convolution::held_bytes() const { return primitives_->primitives * kBytesPerPrimitive; }

void Convolution::ImportFilter(const float* filter, void* own_filter, void* scratchpad) const {
  const Primitives& p = *primitives_;
  Execute(p.import_filter, p.export_scratchpad, scratchpad,
          {{DNNL_ARG_FROM, Operand(p.plain_filter, filter)},
           {DNNL_ARG_TO, Operand(p.own_filter, own_filter)}});
}

void Convolution::ExportFilter(const void* own_filter, float* filter, bool add,
                               void* scratchpad) const {
  const Primitives& p = *primitives_;
  Execute(add ? p.add_filter : p.export_filter, add ? p.add_scratchpad : p.export_scratchpad,
          scratchpad,
          {{DNNL_ARG_FROM, Operand(p.own_filter, own_filter)},
           {DNNL_ARG_TO, Operand(p.plain_filter, filter)}});
}

void Convolution::Forward(const float* input, const void* own_filter, const float* bias,
                          float* output, void* scratchpad) const {
  const Primitives& p = *primitives_;
  std::unordered_map<int, memory> operands = {{DNNL_ARG_SRC, Operand(p.input, input)},
                                              {DNNL_ARG_WEIGHTS, Operand(p.own_filter, own_filter)},
                                              {DNNL_ARG_DST, Operand(p.output, output)}};
  if (bias != nullptr) operands.emplace(DNNL_ARG_BIAS, Operand(p.bias, bias));
  Execute(p.convolution, p.scratchpad, scratchpad, std::move(operands));
  // oneDNN's own ReLU makes a zero of NaN.
  for (int64_t i = 0; i < p.clamped; ++i) output[i] = output[i] < 0.0f ? 0.0f : output[i];
}

void Convolution::GradInput(const float* output_gradient, const void* own_filter,
                            float* input_gradient, void* scratchpad) const {
  const Primitives& p = *primitives_;
  Execute(p.convolution, p.scratchpad, scratchpad,
          {{DNNL_ARG_DIFF_DST, Operand(p.output, output_gradient)},
           {DNNL_ARG_WEIGHTS, Operand(p.own_filter, own_filter)},
           {DNNL_ARG_DIFF_SRC, Operand(p.input, input_gradient)}});
}

void Convolution::GradFilter(const float* input, const float* output_gradient, void* own_filter,
                             void* scratchpad) const {
  const Primitives& p = *primitives_;
  Execute(p.convolution, p.scratchpad, scratchpad,
          {{DNNL_ARG_SRC, Operand(p.input, input)},
           {DNNL_ARG_DIFF_DST, Operand(p.output, output_gradient)},
           {DNNL_ARG_DIFF_WEIGHTS, Operand(p.own_filter, own_filter)}});
}

}  // namespace tidepool::onednn
