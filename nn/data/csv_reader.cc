#include "tidepool/nn/data/csv_reader.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/csv_values.h"

namespace tidepool {
namespace {

constexpr int32_t kMissing = -1;

// As a message shows it.
std::string Shown(absl::string_view text) {
  constexpr size_t kMost = 40;
  return absl::StrCat("\"", OneLine(std::string(text.substr(0, kMost))),
                      text.size() > kMost ? "..." : "", "\"");
}

void CheckSchema(const CsvSchema& schema) {
  const auto refuse = [](const auto&... parts) {
    ThrowInvalidArgument(absl::StrCat("CSV schema: ", parts...));
  };
  if (schema.columns.empty()) refuse("found no columns, expected at least one");
  std::set<std::string> names;
  int64_t labels = 0, numbers = 0;
  for (const CsvColumn& column : schema.columns) {
    const std::string name = Shown(column.name);
    if ((schema.has_header && column.name.empty()) ||
        (!column.name.empty() && !names.insert(column.name).second)) {
      refuse("column ", name, ": found an empty or doubled name, expected one of its own");
    }
    if (column.kind != CsvKind::kCategory && !column.categories.empty()) {
      refuse("column ", name, ": found categories, expected none for numbers");
    }
    if (std::set<std::string>(column.categories.begin(), column.categories.end()).size() !=
        column.categories.size()) {
      refuse("column ", name, ": found a category twice, expected each once");
    }
    if (column.if_missing.has_value() && (!std::isfinite(static_cast<float>(*column.if_missing)) ||
                                          (column.kind == CsvKind::kInteger &&
                                           std::trunc(*column.if_missing) != *column.if_missing))) {
      refuse("column ", name, ": found if_missing ", *column.if_missing,
             ", expected a number that is finite in f32",
             column.kind == CsvKind::kInteger ? " and has no fraction" : "");
    }
    if (column.is_label && column.if_missing.has_value()) {
      refuse("column ", name, ": found if_missing for a label, expected labels that are there");
    }
    labels += column.is_label;
    numbers += column.is_label && column.kind == CsvKind::kNumber;
  }
  if (labels != numbers && labels > 1) {
    refuse("found ", labels, " labels, ", numbers,
           " of them numbers, expected one category or integer, or only numbers");
  }
}

}  // namespace

CsvReader::CsvReader(const std::string& path, const CsvSchema& schema)
    : records_(path, schema.format), schema_(schema) {
  CheckSchema(schema);
  for (const CsvColumn& column : schema_.columns) {
    Cells& cells = cells_.emplace_back();
    cells.column = &column;
    cells.field = cells_.size() - 1;
    cells.learns = column.kind == CsvKind::kCategory && column.categories.empty();
    for (const std::string& category : column.categories) {
      cells.known.emplace(category, static_cast<int32_t>(cells.known.size()));
    }
  }
  fields_ = cells_.size();
  if (schema_.has_header) ReadHeader();
}

bool CsvReader::ReadRow() {
  if (!records_.Next()) return false;
  if (records_.fields().size() != fields_) {
    ThrowDataLoss(absl::StrCat(records_.Where(std::min(records_.fields().size(), fields_ + 1)),
                               "found ", records_.fields().size(), " fields, expected ", fields_));
  }
  return true;
}

int64_t CsvReader::Read(int64_t most) {
  const int64_t width = Width();
  int64_t read = 0;
  for (; read < most && ReadRow(); ++read) {
    ++rows_;
    CheckValues(width);
    for (Cells& cells : cells_) ReadCell(cells);
  }
  return read;
}

int64_t CsvReader::Skip(int64_t most) {
  int64_t skipped = 0;
  while (skipped < most && ReadRow()) ++skipped;
  return skipped;
}

void CsvReader::FinishCategories() {
  for (Cells& cells : cells_) {
    if (cells.learns) SortCategories(cells);
  }
  CheckValues(Width());
}

void CsvReader::Clear() {
  rows_ = 0;
  for (Cells& cells : cells_) {
    cells.numbers.clear();
    cells.integers.clear();
    cells.codes.clear();
  }
}

absl::string_view CsvReader::TextOf(size_t field) const {
  const absl::string_view text = records_.fields()[field];
  return records_.is_quoted(field) ? text : absl::StripAsciiWhitespace(text);
}

void CsvReader::ReadHeader() {
  if (!records_.Next())
    ThrowDataLoss(absl::StrCat(records_.Where(1), "found the end of the file, expected a header"));
  absl::flat_hash_map<std::string, size_t> names;
  std::set<std::string> doubled;
  fields_ = records_.fields().size();
  for (size_t i = 0; i < fields_; ++i) {
    const std::string name(TextOf(i));
    if (!names.emplace(name, i).second) doubled.insert(name);
  }
  for (Cells& cells : cells_) {
    const auto found = names.find(cells.column->name);
    if (found == names.end() || doubled.contains(cells.column->name)) {
      ThrowDataLoss(absl::StrCat(records_.name(), ": line ", records_.line(), ": header: found ",
                                 found == names.end() ? "no column " : "two columns ",
                                 Shown(cells.column->name), ", expected one"));
    }
    cells.field = found->second;
  }
}

void CsvReader::Fail(const Cells& cells, absl::string_view text, absl::string_view expected) const {
  ThrowDataLoss(absl::StrCat(records_.Where(cells.field + 1), Shown(cells.column->name), ": found ",
                             Shown(text), ", expected ", expected));
}

void CsvReader::ReadCell(Cells& cells) {
  const CsvColumn& column = *cells.column;
  const bool is_category = column.kind == CsvKind::kCategory;
  const absl::string_view text = records_.fields()[cells.field];
  const absl::string_view trimmed =
      is_category ? TextOf(cells.field) : absl::StripAsciiWhitespace(text);
  if (!cells.known.contains(trimmed) &&
      std::find(schema_.missing.begin(), schema_.missing.end(), trimmed) != schema_.missing.end()) {
    if (!column.if_missing.has_value())
      Fail(cells, text, "a value, as none is foreseen where it is missing");
    if (is_category) {
      cells.codes.push_back(kMissing);
    } else {
      cells.numbers.push_back(static_cast<float>(*column.if_missing));
    }
    return;
  }
  if (is_category) return cells.codes.push_back(CodeOf(cells, trimmed));
  if (column.kind == CsvKind::kInteger) {
    int64_t value = 0;
    if (!ParseCsvInteger(text, value)) Fail(cells, text, "an integer of 64 bits");
    if (column.is_label) {
      cells.integers.push_back(value);
    } else {
      cells.numbers.push_back(static_cast<float>(value));
    }
    return;
  }
  double value = 0;
  if (!ParseCsvNumber(text, value)) Fail(cells, text, "a number");
  const auto number = static_cast<float>(value);
  if (!std::isfinite(number)) Fail(cells, text, "a number that is finite in f32");
  cells.numbers.push_back(number);
}

int32_t CsvReader::CodeOf(Cells& cells, absl::string_view text) {
  const auto known = cells.known.find(text);
  if (known != cells.known.end()) return known->second;
  if (!cells.learns) Fail(cells, text, absl::StrCat("one of ", cells.known.size(), " categories"));
  if (static_cast<int64_t>(cells.known.size()) >= schema_.max_categories) {
    ThrowResourceExhausted(absl::StrCat(records_.Where(cells.field + 1), Shown(cells.column->name),
                                        ": found more than ", schema_.max_categories,
                                        " categories, expected at most as many"));
  }
  const auto code = static_cast<int32_t>(cells.known.size());
  cells.known.emplace(text, code);
  return code;
}

void CsvReader::SortCategories(Cells& cells) {
  std::vector<std::pair<std::string, int32_t>> sorted(cells.known.begin(), cells.known.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> now(sorted.size());
  CsvColumn& column = schema_.columns[static_cast<size_t>(&cells - cells_.data())];
  for (size_t i = 0; i < sorted.size(); ++i) {
    now[static_cast<size_t>(sorted[i].second)] = static_cast<int32_t>(i);
    column.categories.push_back(sorted[i].first);
  }
  for (int32_t& code : cells.codes) {
    if (code != kMissing) code = now[static_cast<size_t>(code)];
  }
}

int64_t CsvReader::Width() const {
  int64_t width = 0;
  for (const Cells& cells : cells_) {
    if (cells.column->is_label) continue;
    width +=
        cells.column->kind == CsvKind::kCategory ? static_cast<int64_t>(cells.known.size()) : 1;
  }
  return width;
}

void CsvReader::CheckValues(int64_t width) const {
  if (width == 0 || rows_ <= schema_.max_values / width) return;
  ThrowResourceExhausted(absl::StrCat(records_.name(), ": line ", records_.line(), ": found ",
                                      rows_, " rows of ", width, " features, expected at most ",
                                      schema_.max_values, " values"));
}

CsvTable CsvReader::Take(const Place& place) const {
  CsvTable table;
  const int64_t width = Width();
  if (width > 0) {
    table.features = NDArray({rows_, width}, DType::kFloat32, place);
    float* to = rows_ > 0 ? table.features.mutable_data<float>() : nullptr;
    for (const Cells& cells : cells_) {
      if (cells.column->is_label) continue;
      if (cells.column->kind != CsvKind::kCategory) {
        table.feature_names.push_back(cells.column->name);
        for (int64_t row = 0; row < rows_; ++row)
          to[row * width] = cells.numbers[static_cast<size_t>(row)];
        if (to != nullptr) ++to;
        continue;
      }
      const auto categories = static_cast<int64_t>(cells.known.size());
      for (const std::string& category : cells.column->categories) {
        table.feature_names.push_back(absl::StrCat(cells.column->name, "=", category));
      }
      for (int64_t row = 0; row < rows_; ++row) {
        float* const ones = to + row * width;
        std::fill_n(ones, categories, 0.0f);
        const int32_t code = cells.codes[static_cast<size_t>(row)];
        if (code != kMissing) ones[code] = 1;
      }
      if (to != nullptr) to += categories;
    }
  }
  table.labels = Labels(place);
  return table;
}

NDArray CsvReader::Labels(const Place& place) const {
  int64_t count = 0;
  for (const Cells& cells : cells_) count += cells.column->is_label;
  if (count == 0) return {};
  int64_t at = 0;
  NDArray labels;
  for (const Cells& cells : cells_) {
    if (!cells.column->is_label) continue;
    const bool numbers = cells.column->kind == CsvKind::kNumber;
    if (!labels.is_defined()) {
      labels = numbers ? NDArray({rows_, count}, DType::kFloat32, place)
                       : NDArray({rows_}, DType::kInt64, place);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      const auto i = static_cast<size_t>(row);
      if (numbers) {
        labels.mutable_data<float>()[row * count + at] = cells.numbers[i];
      } else {
        labels.mutable_data<int64_t>()[row] =
            cells.column->kind == CsvKind::kInteger ? cells.integers[i] : cells.codes[i];
      }
    }
    ++at;
  }
  return labels;
}

}  // namespace tidepool
