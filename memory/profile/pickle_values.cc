// What is read from a pickle's values.
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/pickle_reader.h"

namespace tidepool {

const Pickle::Node& Pickle::Value::node() const {
  static constexpr Node kMissing{Type::kNone, false, kNothing, {0}};
  return node_ == kNothing ? kMissing : pickle_->nodes_[node_];
}

void Pickle::Value::ThrowNot(const char* expected) const {
  static constexpr const char* kNames[] = {"None",  "a bool", "an int",  "a float",     "text",
                                           "bytes", "a list", "a tuple", "a dictionary"};
  ThrowDataLoss(absl::StrCat(pickle_->what_, ": found ", kNames[static_cast<int>(type())],
                             ", expected ", expected));
}

int64_t Pickle::Value::Int() const {
  if (!is(Type::kInt) && !is(Type::kBool)) ThrowNot("an int");
  return node().number;
}

std::string_view Pickle::Value::Text() const {
  if (!is(Type::kText)) ThrowNot("text");
  return pickle_->bytes_.substr(static_cast<size_t>(node().number), node().first);
}

size_t Pickle::Value::size() const {
  if (is(Type::kDict)) return node().count / 2;
  if (!is(Type::kList) && !is(Type::kTuple)) ThrowNot("a list");
  return node().count;
}

Pickle::Value::Iterator Pickle::Value::begin() const {
  size();
  return {pickle_, node().first};
}

Pickle::Value Pickle::Value::At(std::string_view key) const {
  if (!is(Type::kDict)) ThrowNot("a dictionary");
  uint32_t found = kNothing;
  bool is_key = true, matches = false;
  for (const Value value : *this) {
    if (is_key) {
      matches = value.is(Type::kText) && value.Text() == key;
    } else if (matches) {
      found = value.node_;
    }
    is_key = !is_key;
  }
  return Value(pickle_, found);
}

}  // namespace tidepool
