// What the head of a request claims, checked before anything is read or kept for it.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_REQUEST_HEAD_H_

#include <httplib.h>

#include <cstdint>
#include <map>
#include <string>

namespace tidepool {

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
