#include "tidepool/nn/unique_name.h"

#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {
namespace {

constinit std::mutex names_mutex;

// The texts that are taken, as "mlp 2" is by a second "mlp" and by one that is called so; guarded by names_mutex. Never destroyed:
// networks may be statics.
std::set<std::string>& TakenTexts() {
  static auto& texts = *new std::set<std::string>;
  return texts;
}

// `text` is what is taken.
int TakeNumber(const std::string& name, std::string& text) {
  const std::lock_guard<std::mutex> lock(names_mutex);
  int number = 1;
  for (text = name; TakenTexts().contains(text); text = absl::StrCat(name, " ", ++number)) {
  }
  TakenTexts().insert(text);
  return number;
}

}  // namespace

UniqueName::UniqueName(const std::string& name) : name_(name), number_(TakeNumber(name, text_)) {}

UniqueName::UniqueName(UniqueName&& other) noexcept
    : name_(std::move(other.name_)),
      text_(std::move(other.text_)),
      number_(std::exchange(other.number_, 0)) {}

UniqueName& UniqueName::operator=(UniqueName&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(text_, other.text_);
  std::swap(number_, other.number_);
  return *this;
}

UniqueName::~UniqueName() {
  if (number_ == 0) return;
  const std::lock_guard<std::mutex> lock(names_mutex);
  TakenTexts().erase(text_);
}

}  // namespace tidepool::nn
