// What a server says itself of the requests that it has answered: the histogram of seconds on its
// metrics page. Beside the latencies that who asks has seen it tells whose time it was, where both
// are on the same processors.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_SERVER_TIMES_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_SERVER_TIMES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"

namespace tidepool {

// By bound in seconds, the last one infinite: how many requests took no longer.
using ServerTimes = std::map<double, int64_t>;

// Of the text of a metrics page, the histogram of that name. Empty: it has none, or not in that form.
ServerTimes ServerTimesOf(absl::string_view page,
                          absl::string_view name = "digit_server_request_seconds");
// The same of GET /metrics; empty also where the server has no such page or does not answer.
ServerTimes FetchServerTimes(const std::string& host, int port);

// The least bound that so many percent of the requests between two readings do not exceed. NaN
// without any.
double PercentileBetween(const ServerTimes& before, const ServerTimes& after, double percent);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_SERVER_TIMES_H_
