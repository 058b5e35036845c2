#include "tidepool/examples/digit_server/load_test/server_times.h"

#include <httplib.h>

#include <chrono>
#include <limits>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidepool {

ServerTimes ServerTimesOf(absl::string_view page, absl::string_view name) {
  ServerTimes times;
  const std::string begin = absl::StrCat(name, "_bucket{le=\"");
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!absl::StartsWith(line, begin)) continue;
    line.remove_prefix(begin.size());
    const size_t end = line.find("\"} ");
    double bound = std::numeric_limits<double>::infinity();
    int64_t count = 0;
    if (end == line.npos || !absl::SimpleAtoi(line.substr(end + 3), &count) ||
        (line.substr(0, end) != "+Inf" && !absl::SimpleAtod(line.substr(0, end), &bound))) {
      return {};
    }
    times[bound] = count;
  }
  return times;
}

ServerTimes FetchServerTimes(const std::string& host, int port) {
  // One that has just been asked for more than it takes may need a moment for a page of its own.
  for (int attempt = 0; attempt < 10; ++attempt) {
    httplib::Client client(host, port);
    const httplib::Result page = client.Get("/metrics");
    if (page && page->status == 200) return ServerTimesOf(page->body);
    if (page && page->status != 503) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return {};
}

double PercentileBetween(const ServerTimes& before, const ServerTimes& after, double percent) {
  const auto between = [&](const std::pair<const double, int64_t>& bucket) {
    const auto earlier = before.find(bucket.first);
    return static_cast<double>(bucket.second - (earlier != before.end() ? earlier->second : 0));
  };
  const double all = after.empty() ? 0 : between(*after.rbegin());
  if (all <= 0) return std::numeric_limits<double>::quiet_NaN();
  for (const auto& bucket : after) {
    if (between(bucket) >= all * percent / 100) return bucket.first;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace tidepool
