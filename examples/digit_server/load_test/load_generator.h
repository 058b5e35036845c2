// An open-loop load of HTTP requests: they are sent when their time comes, whatever becomes of those
// before them, as many independent users would. A request's latency counts from when it should have
// been sent, so that a server that stands still is not asked less (coordinated omission).
//
// Threads: one; memory: a number for each request.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_LOAD_GENERATOR_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_LOAD_GENERATOR_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tidepool {

struct Load {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string path = "/digits";
  std::vector<std::string> bodies;  // in turns
  double rate = 100;                // requests a second, at random moments: a Poisson process
  std::chrono::milliseconds time{1000};
  uint64_t seed = 1;  // of the moments
  // Open at once; a request that finds all of them busy waits for one, in its latency.
  int connections = 256;
  std::chrono::milliseconds patience{5000};  // for answers, after the last request's time
};

struct LoadResult {
  static constexpr int kNoConnection = 0;  // refused, or closed without an answer
  static constexpr int kNoAnswer = -1;     // within the patience
  // Nor asked for: all connections were busy until then, or who asks had no time of a processor.
  static constexpr int kNotSent = -2;

  int64_t requests = 0;
  // By status of HTTP, or one of those above: seconds of each, in ascending order.
  std::map<int, std::vector<float>> latencies;

  int64_t Count(int status) const;
  // The least latency that so many percent of the answers of that status do not exceed; 0 without
  // any.
  double Percentile(int status, double percent) const;
};

// The moments of a load's requests, from its begin: a pure function of rate, time and seed.
std::vector<std::chrono::nanoseconds> Arrivals(double rate, std::chrono::nanoseconds time,
                                               uint64_t seed);

// Throws kInvalidArgument for a rate or time that is not positive, no bodies, no connections, or a
// host that is no IPv4 address; kResourceExhausted without descriptors.
LoadResult RunLoad(const Load& load);

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_LOAD_TEST_LOAD_GENERATOR_H_
