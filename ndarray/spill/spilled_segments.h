// Segments of a computation whose inputs wait in a spill file until the gradients come back to them.
//
//   SpilledSegments segments(file);
//   for (Layer& layer : layers) {
//     x = segments.Run([&](absl::Span<const NDArray> in) { return std::vector<NDArray>{layer(in)}; }, {x}, layer.parameters())[0];
//   }
//   tape.Backward(Loss(x, labels));
//
// As with Recomputed() (gradient/gradient_tape.h) nothing of a segment's inside is kept and Backward() calls its
// function again; here its inputs are not kept either. They are written while the segment is computed, and those of the
// segment before are read while the gradients of one are computed. So memory holds what one segment needs, and two
// inputs, however many segments there are: training whose activations are many times a budget goes on, with the same
// bits as on a tape that keeps them, where the function gives the same again.
//
// Ownership: `segments` and the file outlive Backward(). Errors: those of SpillFile, from Run() or Backward(); a step that
// failed may be done again. Threads: as the tape, one; each thread its own.
#ifndef TIDEPOOL_NDARRAY_SPILL_SPILLED_SEGMENTS_H_
#define TIDEPOOL_NDARRAY_SPILL_SPILLED_SEGMENTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class SpilledSegments {
 public:
  // A segment: its results from its inputs. Backward() calls it again, and it gives the same then.
  using Function = std::function<std::vector<NDArray>(absl::Span<const NDArray> inputs)>;

  explicit SpilledSegments(SpillFile& file) : file_(file) {}
  SpilledSegments(const SpilledSegments&) = delete;
  SpilledSegments& operator=(const SpilledSegments&) = delete;

  // function(inputs), new arrays all of them. `inputs`: of any type and device; the caller's handles are his to
  // drop. `parameters`: what the function reads beside them that gradients are wanted of; they stay in memory. Without
  // a tape it is just called. Throws what the function does.
  std::vector<NDArray> Run(Function function, absl::Span<const NDArray> inputs,
                           absl::Span<const NDArray> parameters = {});
  // The same: segments.Run(f, {x, y}).
  std::vector<NDArray> Run(Function function, std::initializer_list<NDArray> inputs,
                           absl::Span<const NDArray> parameters = {}) {
    return Run(std::move(function), absl::MakeConstSpan(inputs.begin(), inputs.size()), parameters);
  }

  int64_t spilled_bytes() const { return spilled_bytes_; }  // ever

 private:
  struct Segment;

  SpillFile& file_;
  std::weak_ptr<Segment> last_;
  int64_t spilled_bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_SPILL_SPILLED_SEGMENTS_H_
