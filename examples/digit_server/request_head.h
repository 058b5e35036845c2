// The head of a request: its bytes, checked before a library reads them its own way, and what it
// claims, checked before anything is read or kept for it.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_

#include <httplib.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

struct HeadRefusal {
  int status = 0;  // 0: it is not refused
  std::string message;
  std::string header, value;  // one to answer with; or empty
};

// What one costs a parser is many times its bytes.
inline constexpr int kMostFields = 100, kMostParameters = 100;
// Of a line without its end: the library takes no longer ones, and does not say why.
inline constexpr size_t kMostLineBytes = 8190;

// The lines of a head as they arrive, by RFC 9112: one that two readers could take for requests
// that end in two places is refused, whatever the library would make of it. Threads: one.
class HeadLines {
 public:
  // `line` ends with "\n". Refused: 400; 414 for a request line of more than kMostLineBytes or
  // kMostParameters in its target, 431 for a longer field or more fields than kMostFields.
  HeadRefusal Add(absl::string_view line);
  // Whether the line that was added last is a field that the library may not see: it takes ranges
  // apart by recursion, some 600 bytes of stack for each byte, whether anybody asks for them or
  // not.
  bool is_hidden() const { return is_hidden_; }
  // The empty line has come.
  bool is_whole() const { return is_whole_; }
  // Whether a body in chunks follows, of a head that is whole.
  bool has_chunks() const { return has_coding_; }

 private:
  HeadRefusal AddRequestLine(absl::string_view line);
  HeadRefusal AddField(absl::string_view line);
  // What is wrong with the fields together.
  std::string Flaw() const;

  bool is_whole_ = false, is_first_ = true, is_old_ = false;  // HTTP/1.0 has no chunks
  bool has_length_ = false, has_coding_ = false, has_host_ = false, is_hidden_ = false;
  int fields_ = 0;
};

// `takes_body`: of each page, POST then, else GET and HEAD. `body_bytes`: the most of a body.
// Threads: any.
HeadRefusal CheckRequestHead(const httplib::Request& request,
                             const std::map<std::string, bool>& takes_body, int64_t body_bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_
