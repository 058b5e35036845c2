// digit_server --model=FILE: answers POSTed digits on loopback; see README.md.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tidepool/examples/digit_server/digit_server.h"
#include "tidepool/nn/model_file.h"

ABSL_FLAG(std::string, model, "", "a file that `tidepool train` wrote");
ABSL_FLAG(int, port, 8080, "0: any that is free");
ABSL_FLAG(int, workers, 2, "requests served at once; each has a predictor");
ABSL_FLAG(int64_t, budget_mib, 8, "MiB that a worker's requests may own at once");

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Serves a model of digits on 127.0.0.1: POST /digits, GET /memory.");
  absl::ParseCommandLine(argc, argv);
  try {
    tidepool::nn::Model model = tidepool::nn::LoadModel(absl::GetFlag(FLAGS_model));
    tidepool::DigitServerOptions options;
    options.port = absl::GetFlag(FLAGS_port);
    options.workers = absl::GetFlag(FLAGS_workers);
    options.budget_bytes = absl::GetFlag(FLAGS_budget_mib) << 20;
    tidepool::DigitServer server(model, options);
    server.Start();
    std::printf("digit_server: http://%s:%d/digits\n", options.host.c_str(), server.port());
    std::fflush(stdout);
    server.Wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digit_server: %s\n", error.what());
    return 1;
  }
}
