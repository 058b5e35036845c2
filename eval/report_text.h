// Parts of what evaluations print.
#ifndef TIDEPOOL_EVAL_REPORT_TEXT_H_
#define TIDEPOOL_EVAL_REPORT_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

// On one line, control characters as escapes ("\n", "\x1b"), and of at most 24 bytes, without cutting a
// UTF-8 character.
std::string ShortenedName(const std::string& name);

// A value of "%.4f", or "undefined" for NaN.
std::string ValueText(double value);

// A table: a line of titles, then a line for each row. Columns are as wide as they need, two blanks
// between them; the first `left` are aligned left, others right.
class TextTable {
 public:
  TextTable(std::vector<std::string> titles, int left) : rows_{std::move(titles)}, left_(left) {}
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  int left_;
};

// names[i], or the number. Throws kInvalidArgument unless there are `count` names or none.
std::string NameOf(const std::vector<std::string>& names, int i);
void CheckNames(const char* who, const std::vector<std::string>& names, int count);
// Throws kInvalidArgument unless lowest <= value <= highest.
void CheckRange(const char* who, const char* what, int64_t value, int64_t lowest, int64_t highest);

// The mean of those that are numbers, by weight where weights are given; NaN if none is.
double MeanOfNumbers(const std::vector<double>& values, const std::vector<double>& weights = {});

}  // namespace tidepool

#endif  // TIDEPOOL_EVAL_REPORT_TEXT_H_
