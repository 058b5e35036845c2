#include "tidepool/ndarray/gradient/write_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidepool {

std::string WriteLog::Write::Text() const {
  return absl::StrCat("Op [", op, "]",
                      site != nullptr ? absl::StrCat(" (called at ", site->Site(), ")") : "",
                      in_backward ? " in Backward()" : "");
}

void WriteLog::Clear() {
  if (writes_.empty()) return;
  writes_.clear();
  room_ = last_.size();
  std::fill(last_.begin(), last_.end(), kNone);
}

void WriteLog::Grow(size_t more) {
  size_t size = std::max<size_t>(64, last_.size());
  while (writes_.size() + more > size) size *= 2;
  writes_.reserve(size);
  last_.assign(size, kNone);
  for (size_t w = 0; w < writes_.size(); ++w) {
    writes_[w].before = std::exchange(last_[Hash(writes_[w].buffer_id)], w);
  }
  room_ = size - writes_.size();
}

}  // namespace tidepool
