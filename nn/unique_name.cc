#include "tidepool/nn/unique_name.h"

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {
namespace {

constinit std::mutex names_mutex;

// The numbers that are taken, by name; guarded by names_mutex. Never destroyed: networks may be
// statics.
std::map<std::string, std::set<int>>& TakenNames() {
  static auto& names = *new std::map<std::string, std::set<int>>;
  return names;
}

int TakeNumber(const std::string& name) {
  std::lock_guard<std::mutex> lock(names_mutex);
  std::set<int>& taken = TakenNames()[name];
  int number = 1;
  while (taken.contains(number)) ++number;
  taken.insert(number);
  return number;
}

}  // namespace

UniqueName::UniqueName(const std::string& name) : name_(name), number_(TakeNumber(name)) {
  text_ = number_ == 1 ? name_ : absl::StrCat(name_, " ", number_);
}

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
  std::lock_guard<std::mutex> lock(names_mutex);
  const auto at = TakenNames().find(name_);
  at->second.erase(number_);
  if (at->second.empty()) TakenNames().erase(at);
}

}  // namespace tidepool::nn
