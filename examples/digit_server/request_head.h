// The head of a request: its bytes, checked before a library reads them its own way, and what it
// claims, checked before anything is read or kept for it.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_

#include <httplib.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

// The lines of a head as they arrive, by RFC 9112: one that two readers could take for requests
// that end in two places is refused, whatever the library would make of it. Threads: one.
class HeadLines {
 public:
  // `line` ends with "\n". Why the head is refused with 400; empty: it is not.
  std::string Add(absl::string_view line);
  // The empty line has come.
  bool is_whole() const { return is_whole_; }

 private:
  std::string AddField(absl::string_view line);

  bool is_whole_ = false, is_first_ = true, is_old_ = false;  // HTTP/1.0 has no chunks
  bool has_length_ = false, has_coding_ = false;
};

struct HeadRefusal {
  int status = 0;  // 0: it is not refused
  std::string message;
  std::string header, value;  // one to answer with; or empty
};

// `takes_body`: of each page, POST then, else GET and HEAD. `body_bytes`: the most of a body.
// Threads: any.
HeadRefusal CheckRequestHead(const httplib::Request& request,
                             const std::map<std::string, bool>& takes_body, int64_t body_bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_
