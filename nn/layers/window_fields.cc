#include "tidepool/nn/layers/window_fields.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {

void VisitWindow(FieldVisitor& visitor, const char* name, std::initializer_list<int64_t*> sizes,
                 Presence presence) {
  std::vector<int64_t> list;
  for (const int64_t* size : sizes) list.push_back(*size);
  visitor.Field(name, list, presence);
  if (list.size() == 1) list.assign(sizes.size(), list[0]);
  if (list.size() != sizes.size()) {
    ThrowInvalidArgument(absl::StrCat("field \"", name, "\" is [",
                                      absl::StrJoin(absl::MakeConstSpan(list).subspan(0, 8), ","),
                                      "], expected ", sizes.size(), " numbers, or one for all"));
  }
  size_t i = 0;
  for (int64_t* size : sizes) *size = list[i++];
}

}  // namespace tidepool::nn
