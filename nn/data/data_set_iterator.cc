#include "tidepool/nn/data/data_set_iterator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

[[noreturn]] void ThrowNotByIndex(const char* call) {
  ThrowUnimplemented(
      absl::StrCat(call, ": found an iterator that does not go by index, expected Next()"));
}

}  // namespace

template <typename Set>
std::optional<int64_t> Iterator<Set>::Claim() {
  ThrowNotByIndex("Iterator::Claim");
}

template <typename Set>
Set Iterator<Set>::Make(int64_t, const std::stop_token&) const {
  ThrowNotByIndex("Iterator::Make");
}

template <typename Set>
void IndexedIterator<Set>::Seek(int64_t position) {
  if (position < 0 || position > size()) {
    ThrowInvalidArgument(
        absl::StrCat("IndexedIterator::Seek: found batch ", position, ", expected 0 to ", size()));
  }
  position_ = position;
}

template <typename Set>
std::optional<int64_t> IndexedIterator<Set>::Claim() {
  if (position_ >= size()) return std::nullopt;
  return position_++;
}

template <typename Set>
std::optional<Set> IndexedIterator<Set>::NextBatch(const std::stop_token& stop) {
  const std::optional<int64_t> index = Claim();
  if (!index.has_value()) return std::nullopt;
  return Make(*index, stop);
}

template <typename Set>
FunctionIterator<Set>::FunctionIterator(int64_t count, Function function)
    : count_(count), function_(std::move(function)) {
  if (count < 0 || !function_) {
    ThrowInvalidArgument(absl::StrCat("FunctionIterator: found ", count, " batches of ",
                                      function_ ? "a function" : "no function",
                                      ", expected at least 0 and a function"));
  }
}

template <typename Set>
typename FunctionIterator<Set>::Function FunctionIterator<Set>::IgnoringStop(
    std::function<Set(int64_t)> function) {
  if (!function) return nullptr;
  return [function = std::move(function)](int64_t index, const std::stop_token&) {
    return function(index);
  };
}

template class Iterator<DataSet>;
template class Iterator<MultiDataSet>;
template class IndexedIterator<DataSet>;
template class IndexedIterator<MultiDataSet>;
template class FunctionIterator<DataSet>;
template class FunctionIterator<MultiDataSet>;

}  // namespace tidepool::nn
