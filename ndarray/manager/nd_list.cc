#include "tidepool/ndarray/manager/nd_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

const NDArray& NDList::At(size_t index) const {
  if (index >= arrays_.size()) {
    ThrowInvalidArgument(absl::StrCat("NDList: array ", index, " of a list of ", arrays_.size()));
  }
  return arrays_[index];
}

NDArray& NDList::At(size_t index) { return const_cast<NDArray&>(std::as_const(*this).At(index)); }

size_t NDList::Find(std::string_view name) const {
  return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

const NDArray& NDList::Get(std::string_view name) const {
  const size_t index = Find(name);
  if (index == arrays_.size()) {
    ThrowNotFound(absl::StrCat("NDList: no array is named \"", std::string(name), "\"; there are ",
                               empty() ? "none" : ToString()));
  }
  return arrays_[index];
}

bool NDList::Has(std::string_view name) const { return Find(name) != arrays_.size(); }

const NDArray& NDList::Single() const {
  if (arrays_.size() != 1) {
    ThrowInvalidArgument(absl::StrCat("NDList: expected one array, found ", arrays_.size()));
  }
  return arrays_[0];
}

void NDList::Close() {
  for (NDArray& array : arrays_) array.Close();
  arrays_.clear();
  names_.clear();
}

std::string NDList::ToString() const {
  std::string text;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", names_[i].empty() ? absl::StrCat(i, ":") : names_[i],
                    " ", DTypeName(arrays_[i].dtype()), " ", arrays_[i].shape().ToString());
  }
  return text;
}

}  // namespace tidepool
