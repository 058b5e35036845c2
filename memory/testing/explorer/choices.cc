#include "tidepool/memory/testing/explorer/choices.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::explorer::internal {
namespace {

bool Allows(uint32_t allowed, uint32_t index) { return index >= 32 || (allowed >> index & 1) != 0; }

}  // namespace

void Choices::Begin(Source source, uint64_t seed) {
  source_ = source;
  from_text_ = false;
  random_ = Mix(seed + 1);
  entries_.clear();
  BeginExecution();
}

void Choices::BeginExecution() {
  if (source_ == Source::kRandom) entries_.clear();
  position_ = 0;
  events_ = 0;
  free_run_ = false;
  inconsistent_ = false;
}

uint32_t Choices::Repeated(uint32_t count, uint32_t allowed) {
  Entry& entry = entries_[position_];
  if (entry.count == 0) {
    entry.count = count;
    entry.allowed = allowed;
    entry.events = events_;
  }
  if (entry.count != count || entry.events != events_ || entry.chosen >= count) {
    inconsistent_ = true;
    return 0;
  }
  ++position_;
  return entry.chosen;
}

uint32_t Choices::Chosen(uint32_t count, uint32_t allowed) {
  uint32_t chosen = 0;
  if (free_run_) return 0;
  if (source_ == Source::kRandom) {
    chosen = static_cast<uint32_t>(Random() % count);
  } else {
    chosen = static_cast<uint32_t>(std::countr_zero(allowed));
  }
  entries_.push_back({chosen, count, allowed, events_});
  ++position_;
  return chosen;
}

void Choices::Record(uint32_t chosen, uint32_t count) {
  entries_.push_back({chosen, count, ~uint32_t{0}, events_});
  ++position_;
}

bool Choices::Advance() {
  entries_.resize(position_);
  while (!entries_.empty()) {
    Entry& last = entries_.back();
    for (uint32_t next = last.chosen + 1; next < last.count; ++next) {
      if (!Allows(last.allowed, next)) continue;
      last.chosen = next;
      return true;
    }
    entries_.pop_back();
  }
  return false;
}

std::string Choices::Text() const {
  std::string text;
  size_t zeros = 0;
  for (size_t i = 0; i < position_; ++i) {
    const uint32_t chosen = entries_[i].chosen;
    if (chosen == 0) {
      ++zeros;
      continue;
    }
    for (; zeros > 26; zeros -= 26) text += 'z';
    if (zeros > 0) text += static_cast<char>('a' + zeros - 1);
    zeros = 0;
    if (chosen < 10) {
      text += static_cast<char>('0' + chosen);
    } else if (chosen < 36) {
      text += static_cast<char>('A' + chosen - 10);
    } else {
      absl::StrAppend(&text, "(", chosen, ")");
    }
  }
  return text;
}

void Choices::BeginReplay(const std::string& text) {
  Begin(Source::kSearch, 0);
  from_text_ = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= 'a' && c <= 'z') {
      entries_.resize(entries_.size() + (c - 'a' + 1), Entry{0, 0, 0, 0});
      continue;
    }
    uint32_t chosen = 0;
    if (c >= '0' && c <= '9') {
      chosen = c - '0';
    } else if (c >= 'A' && c <= 'Z') {
      chosen = c - 'A' + 10;
    } else if (c == '(' && text.find(')', i) != text.npos) {
      for (++i; text[i] != ')'; ++i) chosen = chosen * 10 + (text[i] - '0');
    } else {
      ThrowInvalidArgument(absl::StrCat("replay of an exploration: '", text, "' has '",
                                        text.substr(i, 1), "' at ", i,
                                        ", expected digits, letters or (number)"));
    }
    entries_.push_back({chosen, 0, 0, 0});
  }
}

}  // namespace tidepool::explorer::internal
