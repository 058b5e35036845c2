// libtorch's side of train_benchmark: the same networks, images, loss and updaters, eager mode, in
// libtorch's own layout (NCHW). Not meant to be started by hand: see step_server.h.
#include <dlfcn.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tidepool/nn/data/digits.h"
#include "tidepool/tools/benchmarks/step_server.h"

namespace tidepool::tools {
namespace {

constexpr char kWaitPolicy[] = "OMP_WAIT_POLICY";

// The BLAS is whatever the system's libblas is; OpenBLAS has threads of its own, which
// torch::set_num_threads does not know of. Null for another one.
template <typename Function>
Function OpenBlas(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

torch::nn::Sequential NetworkOf(const std::string& model, int64_t height, int64_t width,
                                int64_t classes) {
  using namespace torch::nn;  // NOLINT
  if (model == "lenet") {
    const int64_t rows = ((height - 4) / 2 - 4) / 2;
    const int64_t columns = ((width - 4) / 2 - 4) / 2;
    return Sequential(Conv2d(Conv2dOptions(1, 20, 5)), ReLU(ReLUOptions(true)), MaxPool2d(2),
                      Conv2d(Conv2dOptions(20, 50, 5)), ReLU(ReLUOptions(true)), MaxPool2d(2),
                      Flatten(), Linear(50 * rows * columns, 500), ReLU(ReLUOptions(true)),
                      Linear(500, classes));
  }
  if (model == "mlp") {
    return Sequential(Flatten(), Linear(height * width, 256), ReLU(ReLUOptions(true)),
                      Linear(256, 128), ReLU(ReLUOptions(true)), Linear(128, classes));
  }
  throw std::runtime_error("model is \"" + model + "\", expected lenet or mlp");
}

class TorchSide : public StepSide {
 public:
  std::string Describe() override {
    std::string text = std::string("libtorch ") + TORCH_VERSION;
    const auto config = OpenBlas<char* (*)()>("openblas_get_config");
    text += std::string("; BLAS: ") + (config != nullptr ? config() : "unknown, its threads too");
    text += torch::hasMKLDNN() ? "; oneDNN" : "; no oneDNN";
    text += std::string("; ") + kWaitPolicy + "=" + std::getenv(kWaitPolicy);
    return text;
  }

  int64_t Begin(const TrainingCase& wanted, const LabelledImages& images) override {
    torch::manual_seed(1);
    torch::set_num_threads(wanted.threads);
    if (torch::get_num_threads() != wanted.threads) {
      throw std::runtime_error("libtorch uses " + std::to_string(torch::get_num_threads()) +
                               " threads, expected " + std::to_string(wanted.threads));
    }
    if (const auto set_threads = OpenBlas<void (*)(int)>("openblas_set_num_threads")) {
      set_threads(wanted.threads);
    }
    batch_ = wanted.batch;
    network_ = NetworkOf(wanted.model, images.height, images.width, images.classes);
    if (wanted.updater == "sgd") {
      optimizer_ = std::make_unique<torch::optim::SGD>(network_->parameters(), kSgdLearningRate);
    } else if (wanted.updater == "adam") {
      optimizer_ = std::make_unique<torch::optim::Adam>(network_->parameters(), kAdamLearningRate);
    } else {
      throw std::runtime_error("updater is \"" + wanted.updater + "\", expected sgd or adam");
    }
    // Bytes, as Tidepool keeps them: both sides convert a batch in each step.
    pixels_ = torch::from_blob(const_cast<uint8_t*>(images.pixels.data()),
                               {images.count, 1, images.height, images.width}, torch::kByte);
    labels_ =
        torch::from_blob(const_cast<uint8_t*>(images.labels.data()), {images.count}, torch::kByte);
    int64_t parameters = 0;
    parameters_ = network_->parameters();
    for (const torch::Tensor& parameter : parameters_) parameters += parameter.numel();
    return parameters;
  }

  double Step(int64_t first) override {
    const torch::Tensor features =
        pixels_.narrow(0, first, batch_).to(torch::kFloat).mul_(1.0 / 255);
    const torch::Tensor labels = labels_.narrow(0, first, batch_).to(torch::kLong);
    // What zero_grad(set_to_none) does in Python: faster than filling the gradients with zeros.
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad() = torch::Tensor();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(network_->forward(features), labels);
    loss.backward();
    optimizer_->step();
    return loss.item<double>();
  }

 private:
  int64_t batch_ = 0;
  torch::nn::Sequential network_ = nullptr;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor pixels_, labels_;
};

}  // namespace
}  // namespace tidepool::tools

using tidepool::tools::kWaitPolicy;

int main(int, char** argv) {
  // OpenMP's idle threads spin by default, on the processors that OpenBLAS's own threads need: with
  // two of each on two processors a step of the MLP took up to 18 times as long. libgomp reads the
  // variable when it is loaded, hence the new start.
  if (std::getenv(kWaitPolicy) == nullptr) {
    setenv(kWaitPolicy, "PASSIVE", 1);
    execv("/proc/self/exe", argv);
  }
  tidepool::tools::TorchSide side;
  tidepool::tools::ServeSteps(side, std::cin, std::cout);
}
