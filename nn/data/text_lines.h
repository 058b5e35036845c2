// Lines of a text file, plain or gzip, each a text and maybe the class it is of:
//
//   f<TAB>Ada            // TextFormat{.has_labels = true}
//   m<TAB>Alan
//
// Lines end with LF or CRLF; the last need not. Several CR in front of LF or the end count as one
// (csv_records.h). Empty lines are passed over, and a byte order mark.
//
// Errors: kDataLoss that names file, line and column (byte, from 1): bytes that are no UTF-8, CR behind
// which anything else stands (old Macintosh files' lines end so), a line without a label or with an
// empty one (unless "" is one of the classes given), a class that is none of those given, a file that became shorter while it was read;
// kResourceExhausted beyond the limits; else as gzip_reader.h. Memory: the texts. Threads: pure
// functions.
#ifndef TIDEPOOL_NN_DATA_TEXT_LINES_H_
#define TIDEPOOL_NN_DATA_TEXT_LINES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

// How a file of texts is written, and how large it may be.
struct TextFormat {
  bool has_labels = false;                   // in front of each text
  char separator = '\t';                     // behind the label
  std::vector<std::string> classes;          // none: those of the file, sorted
  int64_t most_classes = 1024;               // found in the file
  uint64_t most_bytes = uint64_t{4} << 30;   // of the content
  size_t most_line_bytes = size_t{1} << 20;  // of one line
};

struct TextLines {
  std::vector<std::string> texts;    // a line each
  std::vector<int64_t> labels;       // of each, a number of `classes`; without labels none
  std::vector<std::string> classes;  // by which other files are to be read
};

// Throws kInvalidArgument for a separator that ends lines and for classes that are there twice.
TextLines ReadTextLines(const std::string& path, const TextFormat& format = {});

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_TEXT_LINES_H_
