// load_test --port=N: what an HTTP server takes. See ../README.md.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/load_test/load_generator.h"
#include "tidepool/examples/digit_server/load_test/server_times.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/standard_streams.h"

ABSL_FLAG(std::string, host, "127.0.0.1", "an IPv4 address");
ABSL_FLAG(int, port, 8080, "of the server");
ABSL_FLAG(std::string, path, "/digits", "that requests are posted to");
ABSL_FLAG(std::string, body, "", "a file that each request sends; none: pixels of one image");
ABSL_FLAG(int, pixels, 784, "bytes of an image, without --body");
ABSL_FLAG(double, rate, 0, "requests a second of one run; 0: the capacity is looked for first");
ABSL_FLAG(double, target_ms, 100,
          "at capacity 99 % of requests are answered 200 and so quickly, at their worst percent");
ABSL_FLAG(double, seconds, 10, "of a run; those that look for the capacity take two");
ABSL_FLAG(int, connections, 256, "open at once");
ABSL_FLAG(uint64_t, seed, 1, "of the moments when requests are sent");

namespace tidepool {
namespace {

Load LoadOfFlags() {
  Load load;
  load.host = absl::GetFlag(FLAGS_host);
  load.port = absl::GetFlag(FLAGS_port);
  load.path = absl::GetFlag(FLAGS_path);
  load.connections = absl::GetFlag(FLAGS_connections);
  load.seed = absl::GetFlag(FLAGS_seed);
  if (const std::string file = absl::GetFlag(FLAGS_body); !file.empty()) {
    std::ifstream in(file, std::ios::binary);
    if (!in) ThrowNotFound(absl::StrCat(file, ": cannot be read"));
    load.bodies.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    return load;
  }
  const auto pixels = static_cast<size_t>(absl::GetFlag(FLAGS_pixels));
  for (size_t i = 0; i < 16; ++i) {
    std::string image(pixels, '\0');
    for (size_t k = 0; k < pixels; ++k) image[k] = static_cast<char>((k * 31 + i * 97) % 256);
    load.bodies.push_back(std::move(image));
  }
  return load;
}

LoadResult RunAt(Load& load, double rate, double seconds) {
  load.rate = rate;
  load.time = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return RunLoad(load);
}

bool IsTaken(const LoadResult& result) {
  return static_cast<double>(result.Count(200)) >= 0.99 * static_cast<double>(result.requests) &&
         result.Percentile(200, 99) * 1000 <= absl::GetFlag(FLAGS_target_ms);
}

// Once of two times: another program may have had the processors.
bool Takes(Load& load, double rate) {
  constexpr double kSeconds = 2;
  return IsTaken(RunAt(load, rate, kSeconds)) || IsTaken(RunAt(load, rate, kSeconds));
}

// The largest rate that is taken, to some percent.
double FindCapacity(Load& load) {
  RunAt(load, 200, 1);  // what the first requests need is made
  double taken = 0, refused = 0;
  for (double rate = 250; refused == 0 && rate < 1e6; rate *= 1.6) {
    const bool is_taken = Takes(load, rate);
    std::printf("%.0f a second: %s\n", rate, is_taken ? "taken" : "more than it takes");
    std::fflush(stdout);
    (is_taken ? taken : refused) = rate;
  }
  for (int i = 0; i < 5 && refused > 0; ++i) {
    const double rate = (taken + refused) / 2;
    (Takes(load, rate) ? taken : refused) = rate;
  }
  return taken;
}

constexpr char kHead[] =
    "| requests a second | due | not sent | 200 | 503 | 504 | other | no answer | p50 ms | p90 | "
    "p99 | p99.9 "
    "| 503: p99 | server's own p99 at most |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

// From a request that is whole to its answer, of those that were answered, in ms: a bound of the
// server's histogram.
std::string ServersOwn(double seconds) {
  return std::isnan(seconds) ? "-" : std::isinf(seconds) ? "beyond" : absl::StrCat(seconds * 1000);
}

void RunAndPrintRow(Load& load, double rate, double seconds) {
  const ServerTimes before = FetchServerTimes(load.host, load.port);
  const LoadResult result = RunAt(load, rate, seconds);
  const ServerTimes after = FetchServerTimes(load.host, load.port);
  const int64_t lost =
      result.Count(LoadResult::kNoConnection) + result.Count(LoadResult::kNoAnswer);
  const int64_t not_sent = result.Count(LoadResult::kNotSent);
  const int64_t known = not_sent + result.Count(200) + result.Count(503) + result.Count(504);
  const auto ms = [&](int status, double percent) {
    return result.Percentile(status, percent) * 1000;
  };
  std::printf(
      "| %.0f | %lld | %lld | %lld | %lld | %lld | %lld | %lld | %.2f | %.2f | %.2f | %.2f | %.2f "
      "| %s "
      "|\n",
      rate, static_cast<long long>(result.requests), static_cast<long long>(not_sent),
      static_cast<long long>(result.Count(200)), static_cast<long long>(result.Count(503)),
      static_cast<long long>(result.Count(504)),
      static_cast<long long>(result.requests - known - lost), static_cast<long long>(lost),
      ms(200, 50), ms(200, 90), ms(200, 99), ms(200, 99.9), ms(503, 99),
      ServersOwn(PercentileBetween(before, after, 99)).c_str());
  std::fflush(stdout);
}

int Run() {
  Load load = LoadOfFlags();
  const double seconds = absl::GetFlag(FLAGS_seconds), rate = absl::GetFlag(FLAGS_rate);
  if (rate != 0) {
    std::printf("%s", kHead);
    RunAndPrintRow(load, rate, seconds);
    return 0;
  }
  const double capacity = FindCapacity(load);
  std::printf("capacity: %.0f requests a second\n\n%s", capacity, kHead);
  if (capacity == 0) ThrowFailedPrecondition("load: the server takes no 250 requests a second");
  for (const double times : {0.5, 0.9, 2.0}) {
    RunAndPrintRow(load, times * capacity, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  tidepool::OpenClosedStandardStreams();
  absl::SetProgramUsageMessage("Asks a server for digits, at a rate that does not wait for it.");
  if (const auto rest = absl::ParseCommandLine(argc, argv); rest.size() > 1) {
    std::fprintf(stderr, "load_test: argument \"%s\", expected flags\n", rest[1]);
    return 1;
  }
  try {
    return tidepool::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "load_test: %s\n", error.what());
    return 1;
  }
}
