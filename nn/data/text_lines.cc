#include "tidepool/nn/data/text_lines.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/nn/data/gzip_stream.h"

namespace tidepool {
namespace {

class Reader {
 public:
  Reader(const std::string& path, const TextFormat& format)
      : file_(path, Opens::kPipesToo), stream_(file_, format.most_bytes), format_(format) {
    if (format.separator == '\n' || format.separator == '\r' || format.separator == '\0') {
      ThrowInvalidArgument(absl::StrCat("text lines: found separator ",
                                        static_cast<int>(format.separator),
                                        ", expected none that ends lines"));
    }
    for (const std::string& name : format.classes) {
      if (!known_.emplace(name, static_cast<int64_t>(known_.size())).second) {
        ThrowInvalidArgument(absl::StrCat("text lines: found class \"", OneLine(name),
                                          "\" twice, expected each once"));
      }
    }
  }

  TextLines Read() {
    std::vector<uint8_t> piece(size_t{1} << 16);
    uint64_t content = 0;
    std::string line;
    for (bool ends = false; !ends;) {
      const size_t got = stream_.Read(absl::MakeSpan(piece));
      ends = got < piece.size();
      content += got;
      if (content > format_.most_bytes) Exhausted(format_.most_bytes, " bytes");
      absl::string_view rest(reinterpret_cast<const char*>(piece.data()), got);
      while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        if (line.size() + end > format_.most_line_bytes) {
          // All of a file whose lines end otherwise would be one line.
          absl::StrAppend(&line, rest.substr(0, end));
          if (const size_t cr = Content(line, line_ + 1).find('\r'); cr != line.npos) {
            ++line_;
            FailAtCr(cr);
          }
          Exhausted(format_.most_line_bytes, " bytes of a line");
        }
        absl::StrAppend(&line, rest.substr(0, end));
        if (end == rest.size()) break;
        rest.remove_prefix(end + 1);
        Add(line);
        line.clear();
      }
    }
    Add(line);
    SortClasses();
    return std::move(lines_);
  }

 private:
  [[noreturn]] void Exhausted(uint64_t most, absl::string_view what) const {
    ThrowResourceExhausted(absl::StrCat(file_.name(), ": line ", line_ + 1, ": found more than ",
                                        most, what, ", expected at most as many"));
  }
  [[noreturn]] void Fail(size_t byte, absl::string_view found, absl::string_view expected) const {
    ThrowDataLoss(absl::StrCat(file_.name(), ": line ", line_, ", column ", byte + 1, ": found ",
                               found, ", expected ", expected));
  }

  [[noreturn]] void FailAtCr(size_t byte) const {
    Fail(byte, "CR without LF behind it", "lines that end with LF or CR LF");
  }

  // Without a byte order mark and what ends it: one CR or several (text_lines.h).
  static absl::string_view Content(absl::string_view line, uint64_t number) {
    if (number == 1 && line.substr(0, 3) == "\xEF\xBB\xBF") line.remove_prefix(3);
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
  }

  void Add(absl::string_view line) {
    line = Content(line, ++line_);
    if (line.empty()) return;
    for (size_t at = 0; at < line.size();) {
      const size_t bytes = CodePointBytes(line.substr(at));
      if (bytes == 0 || line[at] == '\0') {
        Fail(at,
             absl::StrCat("byte 0x",
                          absl::Hex(static_cast<unsigned char>(line[at]), absl::kZeroPad2)),
             "text in UTF-8");
      }
      if (line[at] == '\r') FailAtCr(at);
      at += bytes;
    }
    if (format_.has_labels) {
      const size_t end = line.find(format_.separator);
      if (end == line.npos) Fail(line.size(), "the end of the line", "a separator behind a label");
      if (end == 0 && !known_.contains("")) Fail(0, "no label", "one in front of the separator");
      lines_.labels.push_back(LabelOf(line.substr(0, end)));
      line.remove_prefix(end + 1);
    }
    lines_.texts.emplace_back(line);
  }

  int64_t LabelOf(absl::string_view name) {
    const auto found = known_.find(std::string(name));
    if (found != known_.end()) return found->second;
    const std::string shown =
        absl::StrCat("class \"", OneLine(std::string(name.substr(0, 40))), "\"");
    if (!format_.classes.empty()) {
      Fail(0, shown, absl::StrCat("one of ", format_.classes.size(), " classes"));
    }
    const auto label = static_cast<int64_t>(known_.size());
    if (label >= format_.most_classes) {
      ThrowResourceExhausted(absl::StrCat(file_.name(), ": line ", line_, ": found ", shown,
                                          ", expected at most ", format_.most_classes, " classes"));
    }
    known_.emplace(name, label);
    return label;
  }

  // From the order in which they came to that of their names.
  void SortClasses() {
    lines_.classes = format_.classes;
    if (!format_.classes.empty()) return;
    std::vector<int64_t> now(known_.size());
    for (const auto& [name, label] : known_) {
      now[static_cast<size_t>(label)] = static_cast<int64_t>(lines_.classes.size());
      lines_.classes.push_back(name);
    }
    for (int64_t& label : lines_.labels) label = now[static_cast<size_t>(label)];
  }

  FileReader file_;
  GzipStream stream_;
  const TextFormat& format_;
  std::map<std::string, int64_t> known_;
  TextLines lines_;
  uint64_t line_ = 0;
};

}  // namespace

TextLines ReadTextLines(const std::string& path, const TextFormat& format) {
  return Reader(path, format).Read();
}

}  // namespace tidepool
