#include "tidepool/examples/language_model/ngram_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::examples {
namespace {

constexpr double kDiscount =
    0.75;  // of each count that is not 0, shared out by the shorter context
constexpr char kBefore = '\xff';

}  // namespace

NgramModel::NgramModel(int order, int symbols)
    : order_(order), symbols_(symbols), by_length_(static_cast<size_t>(std::max(order, 0))) {
  if (order >= 1 && symbols >= 1 && symbols < 0xff) return;
  ThrowInvalidArgument(absl::StrCat("n-gram model: order ", order, " and ", symbols,
                                    " symbols, expected at least 1 and fewer than 255 symbols"));
}

std::string NgramModel::Context(const std::string& text, size_t at, int length) const {
  const auto wanted = static_cast<size_t>(length);
  const std::string before(wanted > at ? wanted - at : 0, kBefore);
  return before + text.substr(at - (wanted - before.size()), wanted - before.size());
}

void NgramModel::Count(Contexts& contexts, const std::string& context, unsigned char symbol) const {
  if (symbol >= symbols_) {
    ThrowInvalidArgument(
        absl::StrCat("n-gram model: symbol ", symbol, ", expected one below ", symbols_));
  }
  Counts& counts = contexts[context];
  counts.of_symbol.resize(static_cast<size_t>(symbols_));
  counts.different += counts.of_symbol[symbol]++ == 0 ? 1 : 0;
  ++counts.all;
}

void NgramModel::Add(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    Count(by_length_.back(), Context(text, i, order_ - 1), static_cast<unsigned char>(text[i]));
  }
}

void NgramModel::Finish() {
  for (size_t length = by_length_.size() - 1; length > 0; --length) {
    Contexts& shorter = by_length_[length - 1];
    shorter.clear();
    for (const auto& [context, counts] : by_length_[length]) {
      for (int symbol = 0; symbol < symbols_; ++symbol) {
        if (counts.of_symbol[static_cast<size_t>(symbol)] > 0) {
          Count(shorter, context.substr(1), static_cast<unsigned char>(symbol));
        }
      }
    }
  }
}

double NgramModel::Probability(const std::string& text, size_t at) const {
  double p = 1.0 / symbols_;
  for (size_t length = 0; length < by_length_.size(); ++length) {
    const auto found = by_length_[length].find(Context(text, at, static_cast<int>(length)));
    if (found == by_length_[length].end()) continue;
    const Counts& counts = found->second;
    const int count = counts.of_symbol[static_cast<unsigned char>(text[at])];
    p = (std::max(0.0, count - kDiscount) + kDiscount * counts.different * p) / counts.all;
  }
  return p;
}

}  // namespace tidepool::examples
