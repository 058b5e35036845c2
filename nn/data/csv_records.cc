#include "tidepool/nn/data/csv_records.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr int kEnd = -1;
constexpr size_t kPieceBytes = size_t{1} << 16;

const CsvFormat& Checked(const CsvFormat& format) {
  const char c = format.separator;
  if (c == '"' || c == '\n' || c == '\r' || c == '\0') {
    ThrowInvalidArgument(absl::StrCat("CSV separator: found character ", static_cast<int>(c),
                                      ", expected none that has a meaning of its own"));
  }
  return format;
}

}  // namespace

CsvRecords::CsvRecords(const std::string& path, const CsvFormat& format)
    : file_(path, Opens::kPipesToo),
      stream_(file_, format.max_bytes),
      format_(Checked(format)),
      piece_(kPieceBytes) {
  constexpr int kMark[] = {0xEF, 0xBB, 0xBF};
  Peek();
  if (end_ >= 3 && piece_[0] == kMark[0] && piece_[1] == kMark[1] && piece_[2] == kMark[2]) at_ = 3;
}

int CsvRecords::Peek() {
  if (at_ == end_) {
    if (at_end_) return kEnd;
    end_ = stream_.Read(absl::MakeSpan(piece_));
    at_ = 0;
    at_end_ = end_ < piece_.size();
    content_ += end_;
    if (content_ > format_.max_bytes) {
      ThrowResourceExhausted(absl::StrCat(file_.name(), ": line ", line_, ": found more than ",
                                          format_.max_bytes, " bytes, expected at most as many"));
    }
    if (end_ == 0) return kEnd;
  }
  return piece_[at_];
}

int CsvRecords::Get() {
  const int c = Peek();
  if (c == kEnd) return c;
  ++at_;
  if (c == '\n') ++line_;
  return c;
}

std::string CsvRecords::Where(size_t column) const {
  return absl::StrCat(file_.name(), ": line ", record_line_, ", column ", column, ": ");
}

void CsvRecords::Fail(uint64_t line, size_t column, absl::string_view found,
                      absl::string_view expected) const {
  ThrowDataLoss(absl::StrCat(file_.name(), ": line ", line, ", column ", column, ": found ", found,
                             ", expected ", expected));
}

void CsvRecords::Append(int c) {
  if (c == 0) Fail(line_, ends_.size() + 1, "a zero byte", "text");
  if (text_.size() == format_.max_record_bytes) {
    ThrowResourceExhausted(absl::StrCat(file_.name(), ": line ", record_line_,
                                        ": found a record of more than ", format_.max_record_bytes,
                                        " bytes, expected at most as many"));
  }
  text_ += static_cast<char>(c);
}

// LF or kEnd, behind one CR or several (csv_records.h).
int CsvRecords::LineEndBehindCr(size_t column) {
  int c;
  do {
    c = Get();
  } while (c == '\r');
  if (c == '\n' || c == kEnd) return c;
  Fail(line_, column, "CR without LF behind it",
       "lines that end with LF or CR LF (CR within a field stands in quotes)");
}

bool CsvRecords::ReadField() {
  const size_t column = ends_.size() + 1;
  if (column > format_.max_fields) {
    ThrowResourceExhausted(absl::StrCat(file_.name(), ": line ", line_, ": found more than ",
                                        format_.max_fields,
                                        " fields in a record, expected at most as many"));
  }
  const bool quoted = Peek() == '"';
  if (quoted) {
    const uint64_t opened = line_;
    Get();
    for (;;) {
      const int c = Get();
      if (c == kEnd)
        Fail(opened, column, "a quote that is not closed before the end of the file",
             "one that is");
      if (c == '"') {
        if (Peek() != '"') break;
        Get();
      }
      Append(c);
    }
  }
  for (;;) {
    int c = Get();
    if (c == '\r') c = LineEndBehindCr(column);
    const bool ends_record = c == '\n' || c == kEnd;
    if (ends_record || c == static_cast<unsigned char>(format_.separator)) {
      ends_.push_back(text_.size());
      are_quoted_.push_back(quoted);
      return !ends_record;
    }
    if (quoted)
      Fail(line_, column, "text behind a closing quote", "the separator or the end of the line");
    if (c == '"')
      Fail(line_, column, "a quote within a field", "one that begins with a quote, or none");
    Append(c);
  }
}

bool CsvRecords::Next() {
  do {
    // Lines without a character, of which gigabytes fit into megabytes of gzip.
    while (Peek() == '\n') {
      for (; at_ < end_ && piece_[at_] == '\n'; ++at_) ++line_;
    }
    if (Peek() == kEnd) return false;
    record_line_ = line_;
    text_.clear();
    ends_.clear();
    are_quoted_.clear();
    while (ReadField()) {
    }
    // Of CR alone; what is quoted is a field.
  } while (ends_.size() == 1 && text_.empty() && !are_quoted_[0]);
  fields_.clear();
  size_t begin = 0;
  for (const size_t end : ends_) {
    fields_.push_back(absl::string_view(text_).substr(begin, end - begin));
    begin = end;
  }
  return true;
}

}  // namespace tidepool
