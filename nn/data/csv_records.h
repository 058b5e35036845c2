// The records of a CSV file (RFC 4180), plain or gzip, one after the other: nothing is held but one
// of them.
//
//   CsvRecords records("houses.csv", {});
//   while (records.Next()) Use(records.fields());
//
// Lines end with LF or CRLF; the last need not. Programs that put CR in front of each LF twice write
// several CR there, which count as one; so do those at the file's end, where a last LF was lost. A
// field in double quotes may hold separators, lines, CR alone and, doubled, quotes. A byte order mark at
// the beginning is skipped, and so are lines without a character (a line of two quotes is a record of
// one field, which is empty). Bytes are not looked at otherwise.
//
// Errors: kDataLoss that names file, line (from 1), column (the field's number, from 1), found and
// expected: a quote within a field that does not begin with one, anything but a separator behind a
// closing quote, a quote that is never closed, CR behind which anything else stands (old Macintosh
// files' lines end so), a zero byte, a file that became shorter while it was read;
// kResourceExhausted for more than the limits say; else as gzip_reader.h. Threads: one at a time.
#ifndef TIDEPOOL_NN_DATA_CSV_RECORDS_H_
#define TIDEPOOL_NN_DATA_CSV_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/gzip_stream.h"

namespace tidepool {

struct CsvFormat {
  char separator = ',';
  uint64_t max_bytes = uint64_t{4} << 30;     // of the content
  size_t max_record_bytes = size_t{1} << 20;  // of one record's fields
  size_t max_fields = size_t{1} << 16;        // of one record
};

class CsvRecords {
 public:
  // Throws kInvalidArgument for a separator that is a quote, a line's end or zero.
  CsvRecords(const std::string& path, const CsvFormat& format);

  // False at the end of the file, where all lengths and checksums were right.
  bool Next();
  // Of the record that Next() found, valid until the next.
  absl::Span<const absl::string_view> fields() const { return fields_; }
  // Whether that one of them, from 0, stood in quotes: then blanks at its ends were meant.
  bool is_quoted(size_t field) const { return are_quoted_[field]; }
  // Where that one began.
  uint64_t line() const { return record_line_; }
  const std::string& name() const { return file_.name(); }

  // "<file>: line 7, column 2: "
  std::string Where(size_t column) const;

 private:
  int Peek();
  int Get();
  void Append(int c);
  int LineEndBehindCr(size_t column);
  bool ReadField();  // false: the record's last one
  [[noreturn]] void Fail(uint64_t line, size_t column, absl::string_view found,
                         absl::string_view expected) const;

  FileReader file_;
  GzipStream stream_;
  const CsvFormat format_;
  std::vector<uint8_t> piece_;
  size_t at_ = 0, end_ = 0;
  bool at_end_ = false;
  uint64_t content_ = 0;  // so far
  uint64_t line_ = 1, record_line_ = 1;
  std::string text_;          // of all fields of the record
  std::vector<size_t> ends_;  // of each in it
  std::vector<bool> are_quoted_;
  std::vector<absl::string_view> fields_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_CSV_RECORDS_H_
