// A sliding product over a batch of images, the common core of Conv2dForward and of Conv2dGradInput
// with stride 1 (which slides the flipped filter over dy). Also the padded view of an image that
// Conv2dGradFilter reads. A batch is of volumes, images being volumes of one plane: the products of a filter's planes
// are added up one after the other.
#ifndef TIDEPOOL_BACKENDS_CPU_GEMM_CORRELATION_H_
#define TIDEPOOL_BACKENDS_CPU_GEMM_CORRELATION_H_

#include <stddef.h>
#include <stdint.h>

#include "tidepool/backends/cpu/gemm/tile_kernels.h"

namespace tidepool {
class ThreadPool;  // ndarray/kernel/threads.h
}

namespace tidepool::cpu {

struct Conv3dProblem;

// Sizes as in Conv3dProblem. Back, bottom and right edges follow from the output's size; a negative pad
// skips planes, rows or columns of the input.
struct Correlation {
  int64_t batch, in_height, in_width, in_channels, out_height, out_width, out_channels;
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width, pad_top, pad_left, dilation_height, dilation_width;
  int64_t in_planes = 1, out_planes = 1, kernel_planes = 1, stride_planes = 1, pad_front = 0,
          dilation_planes = 1;

  // Inner positions of one of the filter's planes.
  int64_t Depth() const { return kernel_height * kernel_width * in_channels; }
  int64_t OutputRows() const { return batch * out_planes * out_height; }
  // Which of the batch's planes a plane of the filter sees from plane `plane` of the batch's output; -1: padding.
  int64_t InputPlane(int64_t plane, int64_t kernel_plane) const {
    const int64_t place =
        plane % out_planes * stride_planes + kernel_plane * dilation_planes - pad_front;
    return place < 0 || place >= in_planes ? -1 : plane / out_planes * in_planes + place;
  }
  // Rows and columns of input that `count` successive output rows or columns touch.
  int64_t SpanHeight(int64_t count) const {
    return (count - 1) * stride_height + (kernel_height - 1) * dilation_height + 1;
  }
  int64_t SpanWidth() const {
    return (out_width - 1) * stride_width + (kernel_width - 1) * dilation_width + 1;
  }
  // Whether some output touches what is not in the input.
  bool NeedsPadding() const {
    return pad_top != 0 || pad_left != 0 || SpanHeight(out_height) > in_height ||
           SpanWidth() > in_width;
  }
};

Correlation ForwardCorrelation(const Conv3dProblem& problem);

// Inner positions worked on at once: `count` segments of `length` floats, at `offsets` (bytes) from
// a pixel's first input. Covers depth positions from `position` of the order (row, column, channel).
struct ReductionGroup {
  static constexpr int kMaxSegments = 64;
  int64_t position = 0, depth = 0, length = 0;
  int count = 0;
  int64_t offsets[kMaxSegments];
};

// Replaces *group by the one after it (from the default: the first); false at the end. `row_floats`
// is the distance between rows of the image.
bool NextGroup(const Correlation& correlation, int64_t row_floats, ReductionGroup* group);

// A run of output rows with what they touch of the input.
struct ImageView {
  const float* origin;  // of the first output row's first pixel
  int64_t row_floats;   // between rows of the image
};

// Calls visit(first_row, rows, view) for each plane that a plane of the filter sees from output rows [row, row + rows) of
// the batch. The view is of x itself or, when padding is needed, of a padded copy made in `buffer`.
template <typename Visit>
void ForEachImageView(const Correlation& c, const float* x, int64_t row, int64_t rows,
                      int64_t kernel_plane, float* buffer, Visit visit);

// Floats of buffer for any `rows` output rows.
int64_t ViewBufferFloats(const Correlation& correlation, int64_t rows);

// Copies the input under `rows` output rows of `image`, one plane, from output row `row` on, SpanWidth() wide,
// zeros where there is no input.
void CopyPadded(const Correlation& correlation, const float* image, int64_t row, int64_t rows,
                float* destination);

// Packs columns [column, column + width) of one group of a plane of the filter (valid of them exist) to
// [depth][width].
struct FilterPacker {
  virtual void Pack(const TileKernels& kernels, int64_t kernel_plane, const ReductionGroup& group,
                    int64_t column, int64_t valid, int64_t width, float* destination) const = 0;

 protected:
  ~FilterPacker() = default;
};

size_t CorrelationScratchBytes(const Correlation& correlation, int threads);
// y = correlation of x with the filter, + bias unless null, then max(0, .) if relu.
void RunCorrelation(const Correlation& correlation, const float* x, const FilterPacker& filter,
                    const float* bias, bool relu, float* y, void* scratch, ThreadPool* pool);

template <typename Visit>
void ForEachImageView(const Correlation& c, const float* x, int64_t row, int64_t rows,
                      int64_t kernel_plane, float* buffer, Visit visit) {
  const bool padded = c.NeedsPadding();
  for (const int64_t end = row + rows; row < end;) {
    const int64_t image = c.InputPlane(row / c.out_height, kernel_plane);
    const int64_t first = row % c.out_height, left = c.out_height - first;
    const int64_t count = left < end - row ? left : end - row;
    if (image < 0) {
      row += count;
      continue;
    }
    const float* pixels = x + image * c.in_height * c.in_width * c.in_channels;
    ImageView view;
    if (padded) {
      view = {buffer, c.SpanWidth() * c.in_channels};
      CopyPadded(c, pixels, first, count, buffer);
      buffer += c.SpanHeight(count) * view.row_floats;
    } else {
      view.row_floats = c.in_width * c.in_channels;
      view.origin = pixels + first * c.stride_height * view.row_floats;
    }
    visit(row, count, view);
    row += count;
  }
}

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_GEMM_CORRELATION_H_
