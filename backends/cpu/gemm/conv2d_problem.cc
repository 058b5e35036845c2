#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/backends/cpu/gemm/conv3d.h"
#include "tidepool/memory/error.h"

namespace tidepool::cpu {

namespace {

// `in` with its padding.
int64_t Places(int64_t in, int64_t kernel, int64_t stride, int64_t dilation) {
  const int64_t room = in - (kernel - 1) * dilation - 1;
  return room < 0 ? 0 : room / stride + 1;
}

}  // namespace

int64_t Conv2dProblem::OutHeight() const {
  return Places(in_height + pad_top + pad_bottom, kernel_height, stride_height, dilation_height);
}

int64_t Conv2dProblem::OutWidth() const {
  return Places(in_width + pad_left + pad_right, kernel_width, stride_width, dilation_width);
}

int64_t Conv3dProblem::OutPlanes() const {
  return Places(in_planes + pad_front + pad_behind, kernel_planes, stride_planes, dilation_planes);
}

void CheckConvolution(const char* what, const Conv3dProblem& problem, const void* first,
                      const void* second, const void* third) {
  const Conv2dProblem& p = problem.plane;
  const auto fail = [&](const char* expected) {
    ThrowInvalidArgument(absl::StrCat(
        what, ": found ", problem.in_planes, " planes, kernel ", problem.kernel_planes, ", stride ",
        problem.stride_planes, ", dilation ", problem.dilation_planes, ", padding ",
        problem.pad_front, ",", problem.pad_behind, "; of each plane input ", p.batch, "x",
        p.in_height, "x", p.in_width, "x", p.in_channels, ", kernel ", p.kernel_height, "x",
        p.kernel_width, " to ", p.out_channels, " channels, stride ", p.stride_height, "x",
        p.stride_width, ", dilation ", p.dilation_height, "x", p.dilation_width, ", padding ",
        p.pad_top, ",", p.pad_bottom, ",", p.pad_left, ",", p.pad_right, "; expected ", expected));
  };
  if (p.batch < 0 || problem.in_planes < 1 || p.in_height < 1 || p.in_width < 1 ||
      p.in_channels < 1 || p.out_channels < 1) {
    fail("batch >= 0 and other sizes >= 1");
  }
  if (problem.kernel_planes < 1 || problem.stride_planes < 1 || problem.dilation_planes < 1 ||
      p.kernel_height < 1 || p.kernel_width < 1 || p.stride_height < 1 || p.stride_width < 1 ||
      p.dilation_height < 1 || p.dilation_width < 1) {
    fail("kernel, stride and dilation >= 1");
  }
  if (problem.pad_front < 0 || problem.pad_behind < 0 || p.pad_top < 0 || p.pad_bottom < 0 ||
      p.pad_left < 0 || p.pad_right < 0) {
    fail("padding >= 0");
  }
  if (problem.OutPlanes() < 1 || p.OutHeight() < 1 || p.OutWidth() < 1)
    fail("a kernel no larger than the padded input");
  if (p.batch > 0 && (first == nullptr || second == nullptr || third == nullptr)) {
    fail("arrays that are not null");
  }
}

}  // namespace tidepool::cpu
