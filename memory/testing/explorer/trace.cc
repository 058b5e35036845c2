#include "tidepool/memory/testing/explorer/trace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tidepool::explorer::internal {
namespace {

constexpr size_t kMostEvents = 400;
constexpr size_t kWidest = 72;

void Pad(std::string& text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
}

}  // namespace

std::string ThreadName(int slot) { return slot == 0 ? "the body" : absl::StrCat("T", slot); }

std::string Trace::PointerName(uint64_t address) const {
  if (address == 0) return "null";
  for (size_t i = pointers_.size(); i-- > 0;) {
    if (pointers_[i] == address) return absl::StrCat("n", i + 1);
  }
  return absl::StrCat("0x", absl::Hex(address));
}

std::string Trace::Text() const {
  // The body and the first thread share a column: they never run at the same time.
  auto column_of = [](int slot) { return static_cast<size_t>(std::max(slot, 1) - 1); };
  size_t columns = 1;
  for (const Event& event : events_) columns = std::max(columns, column_of(event.slot) + 1);
  std::vector<size_t> widths(columns, 8);
  std::vector<std::string> cells;
  for (const Event& event : events_) {
    std::string cell = absl::StrCat(event.slot == 0 ? "(body) " : "", event.text);
    if (event.where != "?") absl::StrAppend(&cell, "  ", event.where);
    size_t& width = widths[column_of(event.slot)];
    width = std::min(std::max(width, cell.size()), kWidest);
    cells.push_back(std::move(cell));
  }
  std::string text = "  step  ";
  for (size_t i = 0; i < columns; ++i) {
    const size_t begin = text.size();
    absl::StrAppend(&text, "T", i + 1);
    if (i + 1 < columns) Pad(text, begin + widths[i] + 2);
  }
  text += '\n';
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells.size() > kMostEvents && i == kMostEvents / 2) {
      absl::StrAppend(&text, "  ... ", cells.size() - kMostEvents, " lines left out\n");
      i = cells.size() - kMostEvents / 2;
    }
    std::string line = absl::StrCat(i + 1);
    line.insert(0, 6 - std::min<size_t>(line.size(), 6), ' ');
    line += "  ";
    for (size_t column = 0; column < column_of(events_[i].slot); ++column) {
      line.append(widths[column] + 2, ' ');
    }
    absl::StrAppend(&text, line, cells[i], "\n");
  }
  if (!names_.empty()) {
    text += "  made:";
    for (const auto& [name, where] : names_) absl::StrAppend(&text, " ", name, " ", where, ",");
    text.back() = '\n';
  }
  return text;
}

}  // namespace tidepool::explorer::internal
