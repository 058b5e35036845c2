// Convolutions of oneDNN, prepared for one shape and kept.
//
// oneDNN generates machine code for a shape (about 1 ms, 25 KiB a primitive) and wants filters in a
// layout of its own, which is made in the caller's scratch at each call. Whatever it needs while it
// runs is the caller's scratch too.
//
// Algorithm: direct convolution and its gradients (no Winograd, whose errors are larger).
#ifndef TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_H_
#define TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tidepool::onednn {

enum class ConvolutionKind : int64_t { kForward, kGradInput, kGradFilter };

// Images NHWC, filters [filters, kernel height, kernel width, channels / groups]. All members are 8
// bytes wide: compared and hashed as bytes.
struct ConvolutionShape {
  ConvolutionKind kind = ConvolutionKind::kForward;
  int64_t batch = 0, in_height = 0, in_width = 0, channels = 0;
  int64_t groups = 1, filters = 0, kernel_height = 0, kernel_width = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t bias = 0, relu = 0;  // forward only; 0 or 1

  bool operator==(const ConvolutionShape& other) const;
  int64_t InputElements() const { return batch * in_height * in_width * channels; }
  int64_t OutputElements() const { return batch * out_height * out_width * filters; }
  int64_t FilterElements() const {
    return filters * kernel_height * kernel_width * (channels / groups);
  }
  int64_t MultiplyAdds() const {
    return OutputElements() * kernel_height * kernel_width * (channels / groups);
  }
};

class Convolution {
 public:
  // Null where oneDNN has no optimised code for the shape, or none that is right. Throws kInternal or OutOfMemoryError with
  // oneDNN's status where it fails.
  static std::shared_ptr<const Convolution> Make(const ConvolutionShape& shape);
  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // Bytes of a filter in oneDNN's layout, and of what the calls below want as `scratchpad` (64-byte
  // aligned; may be null when 0).
  size_t filter_bytes() const;
  size_t scratchpad_bytes() const;
  bool HasFilterLayoutOf(const Convolution& other) const;
  // About what it holds on the heap: oneDNN has no way to ask.
  int64_t held_bytes() const;

  // All may run on several threads at once, each with its own scratchpad. `own_filter` is in
  // oneDNN's layout; floats everywhere.
  void ImportFilter(const float* filter, void* own_filter, void* scratchpad) const;
  void ExportFilter(const void* own_filter, float* filter, bool add, void* scratchpad) const;
  void Forward(const float* input, const void* own_filter, const float* bias, float* output,
               void* scratchpad) const;
  void GradInput(const float* output_gradient, const void* own_filter, float* input_gradient,
                 void* scratchpad) const;
  void GradFilter(const float* input, const float* output_gradient, void* own_filter,
                  void* scratchpad) const;

 private:
  struct Primitives;
  explicit Convolution(std::unique_ptr<Primitives> primitives);
  const std::unique_ptr<Primitives> primitives_;
};

}  // namespace tidepool::onednn

#endif  // TIDEPOOL_BACKENDS_ONEDNN_CONVOLUTION_H_
