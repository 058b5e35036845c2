#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/conv2d_check.h"
#include "tidepool/memory/error.h"

namespace tidepool::cpu {

int64_t Conv2dProblem::OutHeight() const {
  const int64_t room = in_height + pad_top + pad_bottom - (kernel_height - 1) * dilation_height - 1;
  return room < 0 ? 0 : room / stride_height + 1;
}

int64_t Conv2dProblem::OutWidth() const {
  const int64_t room = in_width + pad_left + pad_right - (kernel_width - 1) * dilation_width - 1;
  return room < 0 ? 0 : room / stride_width + 1;
}

void CheckConv2d(const char* function, const Conv2dProblem& p, const void* first,
                 const void* second, const void* third) {
  const auto fail = [&](const char* expected) {
    ThrowInvalidArgument(absl::StrCat(
        function, ": found input ", p.batch, "x", p.in_height, "x", p.in_width, "x", p.in_channels,
        ", kernel ", p.kernel_height, "x", p.kernel_width, " to ", p.out_channels,
        " channels, stride ", p.stride_height, "x", p.stride_width, ", dilation ",
        p.dilation_height, "x", p.dilation_width, ", padding ", p.pad_top, ",", p.pad_bottom, ",",
        p.pad_left, ",", p.pad_right, "; expected ", expected));
  };
  if (p.batch < 0 || p.in_height < 1 || p.in_width < 1 || p.in_channels < 1 || p.out_channels < 1) {
    fail("batch >= 0 and other sizes >= 1");
  }
  if (p.kernel_height < 1 || p.kernel_width < 1 || p.stride_height < 1 || p.stride_width < 1 ||
      p.dilation_height < 1 || p.dilation_width < 1) {
    fail("kernel, stride and dilation >= 1");
  }
  if (p.pad_top < 0 || p.pad_bottom < 0 || p.pad_left < 0 || p.pad_right < 0) {
    fail("padding >= 0");
  }
  if (p.OutHeight() < 1 || p.OutWidth() < 1) fail("a kernel no larger than the padded input");
  if (p.batch > 0 && (first == nullptr || second == nullptr || third == nullptr)) {
    fail("arrays that are not null");
  }
}

}  // namespace tidepool::cpu
