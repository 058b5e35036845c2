// Sizes by axis as fields.
#ifndef TIDEPOOL_NN_LAYERS_SIZES_BY_AXIS_H_
#define TIDEPOOL_NN_LAYERS_SIZES_BY_AXIS_H_

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/layers/field_visitor.h"

namespace tidepool::nn {

// One number stands for all axes. Throws kInvalidArgument for another count than that of the axes.
template <size_t kAxes>
void VisitSizes(FieldVisitor& visitor, const char* name, std::array<int64_t, kAxes>& sizes,
                Presence presence = Presence::kOptional) {
  std::vector<int64_t> list(sizes.begin(), sizes.end());
  visitor.Field(name, list, presence);
  if (list.size() == 1) list.assign(kAxes, list[0]);
  if (list.size() != kAxes) {
    ThrowInvalidArgument(absl::StrCat("field \"", name, "\" is [", absl::StrJoin(list, ","),
                                      "], expected ", kAxes, " numbers, or one for all"));
  }
  for (size_t i = 0; i < kAxes; ++i) sizes[i] = list[i];
}

// [before, behind] by axis, one axis behind the other; one number stands for all.
template <size_t kAxes>
void VisitPadding(FieldVisitor& visitor, const char* name, std::array<int64_t, kAxes>& before,
                  std::array<int64_t, kAxes>& behind) {
  std::array<int64_t, 2 * kAxes> both;
  for (size_t i = 0; i < kAxes; ++i) {
    both[2 * i] = before[i];
    both[2 * i + 1] = behind[i];
  }
  VisitSizes(visitor, name, both);
  for (size_t i = 0; i < kAxes; ++i) {
    before[i] = both[2 * i];
    behind[i] = both[2 * i + 1];
  }
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_SIZES_BY_AXIS_H_
