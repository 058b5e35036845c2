// answering_service MODEL: eight threads ask the model that csv_training left, 200 times each; two workers answer.
#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/parallel/inference_metrics.h"
#include "tidepool/nn/parallel/parallel_inference.h"

namespace {

using namespace tidepool;
using namespace tidepool::nn;

void Serve(const std::string& path) {
  Model model = LoadModel(path);
  const int64_t columns = model.network->input_shape()[0];
  ParallelInference service(std::shared_ptr<Network>(std::move(model.network)),
                            {.workers = 2, .batch_limit = 32, .queue_limit = 64});
  std::atomic<int> answers{0}, refused{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 200; ++i) {
        const NDArray x = RandomUniform({1 + (client + i) % 4, columns}, -1, 1, client * 1000 + i);
        try {
          const NDArray y = service.Output(x);
          answers += y.shape() == Shape({x.shape()[0], 3});
        } catch (const std::exception&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::printf("%d answers, %d refused\n%s", answers.load(), refused.load(),
              InferenceMetricsText().c_str());
  service.Shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "answering_service MODEL\n");
    return 2;
  }
  try {
    Serve(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "answering_service: %s\n", error.what());
    return 1;
  }
}
