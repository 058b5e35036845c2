// digit_server --model=FILE: answers POSTed digits on loopback; see README.md.
#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/examples/digit_server/digit_server.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/standard_streams.h"
#include "tidepool/nn/image_model.h"
#include "tidepool/nn/model_file.h"

ABSL_FLAG(std::string, model, "", "a file that `tidepool train` wrote");
ABSL_FLAG(int, port, 8080, "0: any that is free");
ABSL_FLAG(int, workers, 2, "batches of requests computed at once");
ABSL_FLAG(int, threads, 1, "that the kernels of a worker use");
ABSL_FLAG(int64_t, budget_mib, 8, "MiB that a worker's batch may own at once");
ABSL_FLAG(int64_t, batch_limit, 32, "images computed together, and of one request at a time");
ABSL_FLAG(int64_t, queue_limit, 32, "requests that wait for a worker; one more is answered 503");
ABSL_FLAG(int64_t, deadline_ms, 10'000,
          "a request that no worker could begin so long after it came is answered 504");
ABSL_FLAG(int, connections, 64, "open at once; one more is answered 503");
ABSL_FLAG(int64_t, body_mib, 16, "MiB of one body; all at once may have four times that");
ABSL_FLAG(int64_t, max_operations, tidepool::nn::kMaxExampleOperations,
          "multiply-adds or the like for one image, at most");
ABSL_FLAG(int, request_seconds, 10, "for a request to arrive, and for its answer to be taken");
ABSL_FLAG(int, stop_seconds, 2, "for what has come to be answered when it stops");
ABSL_FLAG(int, drain_seconds, 0,
          "between SIGTERM or SIGINT and the stop: /readyz is 503, everything else goes on");

namespace tidepool {
namespace {

int64_t InRange(const char* flag, int64_t value, int64_t most, int64_t least = 1) {
  if (value < least || value > most) {
    ThrowInvalidArgument(
        absl::StrCat("flag --", flag, " is ", value, ", expected ", least, " to ", most));
  }
  return value;
}

DigitServerOptions OptionsOfFlags() {
  DigitServerOptions options;
  options.port = absl::GetFlag(FLAGS_port);
  DigitReaderOptions& reader = options.reader;
  reader.workers = absl::GetFlag(FLAGS_workers);
  reader.threads_of_worker = absl::GetFlag(FLAGS_threads);
  reader.budget_bytes = InRange("budget_mib", absl::GetFlag(FLAGS_budget_mib), 1 << 20) << 20;
  reader.batch_limit = absl::GetFlag(FLAGS_batch_limit);
  reader.queue_limit = absl::GetFlag(FLAGS_queue_limit);
  reader.deadline = std::chrono::milliseconds(
      InRange("deadline_ms", absl::GetFlag(FLAGS_deadline_ms), 86'400'000));
  HttpLimits& limits = options.limits;
  limits.connections =
      static_cast<int>(InRange("connections", absl::GetFlag(FLAGS_connections), 10'000));
  limits.body_bytes = InRange("body_mib", absl::GetFlag(FLAGS_body_mib), 1 << 16) << 20;
  limits.all_bodies_bytes = 4 * limits.body_bytes;
  limits.request_time = limits.answer_time =
      std::chrono::seconds(InRange("request_seconds", absl::GetFlag(FLAGS_request_seconds), 3600));
  limits.stop_time =
      std::chrono::seconds(InRange("stop_seconds", absl::GetFlag(FLAGS_stop_seconds), 3600));
  return options;
}

std::shared_ptr<nn::Model> LoadDigits(int64_t operations) {
  const std::string file = absl::GetFlag(FLAGS_model);
  if (file.empty()) ThrowInvalidArgument("flag --model is empty, expected the path of a model");
  auto model = std::make_shared<nn::Model>(
      nn::LoadModel(file, WorkspaceMode::kEnabled, Host(), nn::kMaxExampleElements, operations));
  nn::RequireImageModel(*model, file);
  return model;
}

// At once, for who waits for it.
void Print(const std::string& line) {
  if (std::printf("%s\n", line.c_str()) < 0 || std::fflush(stdout) != 0) {
    ThrowErrno(errno, "write standard output");
  }
}

// For so long, or until a second signal to end. There is no model to be read again any more.
void AwaitDrained(const sigset_t& signals, std::chrono::seconds drain) {
  const auto until = std::chrono::steady_clock::now() + drain;
  for (;;) {
    const std::chrono::nanoseconds left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return;
    const timespec wait = {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &wait);
    if (signal == SIGINT || signal == SIGTERM) return;
  }
}

int Run() {
  // Of a reader of what is printed who has gone writing tells.
  signal(SIGPIPE, SIG_IGN);
  BoundedServer::KeepLittleFreedMemory();
  // Before there are threads, which kernels have as well: they would take them.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const DigitServerOptions options = OptionsOfFlags();
  const int64_t operations = InRange("max_operations", absl::GetFlag(FLAGS_max_operations),
                                     std::numeric_limits<int64_t>::max());
  const int64_t drain = InRange("drain_seconds", absl::GetFlag(FLAGS_drain_seconds), 3600, 0);
  DigitServer server(LoadDigits(operations), options);
  server.Start();
  Print(absl::StrCat("digit_server: http://", options.host, ":", server.port(), "/digits"));
  const timespec second = {1, 0};
  while (server.is_listening()) {
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal < 0) continue;
    if (signal == SIGHUP) {
      try {
        server.UpdateModel(LoadDigits(operations));
        Print("digit_server: the model has been read again");
      } catch (const std::exception& error) {
        std::fprintf(stderr, "digit_server: the model stays as it is: %s\n", error.what());
      }
      continue;
    }
    const char* by = signal == SIGINT ? "SIGINT" : "SIGTERM";
    server.Drain();
    AwaitDrained(signals, std::chrono::seconds(drain));
    if (!server.TryStop()) {
      // Kernels cannot be stopped, and who asked is not answered any more.
      std::fprintf(
          stderr,
          "digit_server: stopped by %s; a request is still computed, and is not waited for\n", by);
      std::fflush(nullptr);
      std::_Exit(1);
    }
    Print(absl::StrCat("digit_server: stopped by ", by));
    return 0;
  }
  ThrowInternal("the system ended the listening socket");
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  tidepool::OpenClosedStandardStreams();
  absl::SetProgramUsageMessage(
      "Serves a model of digits on 127.0.0.1: POST /digits, GET /metrics, /memory, /healthz, "
      "/readyz.");
  if (const auto rest = absl::ParseCommandLine(argc, argv); rest.size() > 1) {
    std::fprintf(stderr, "digit_server: argument \"%s\", expected flags\n", rest[1]);
    return 1;
  }
  try {
    return tidepool::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digit_server: %s\n", error.what());
    return 1;
  }
}
