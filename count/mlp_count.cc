#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/training/hand_step.h"
using namespace tidepool;
using namespace tidepool::nn;
extern "C" __attribute__((noinline)) double HandOnce(Network& n, NDArray& g, const NDArray& f, const NDArray& l) {
  WorkspaceScope scope(n.training_workspace());
  return GradientsByHand(n, g, f, l);
}
extern "C" __attribute__((noinline)) double TapeOnce(Network& n, NDArray& g, const NDArray& f, const NDArray& l) {
  WorkspaceScope scope(n.training_workspace());
  return n.ComputeGradients(f, l);
}
int main(int argc, char** argv) {
  SetThreadCount(1);
  const int64_t batch = std::atoi(argv[2]);
  const int steps = std::atoi(argv[3]);
  const bool images = std::strcmp(argv[4], "lenet") == 0;
  Network network(images ? Shape{28, 28, 1} : Shape{784}, LayersOf(argv[4], 10), 7);
  const Shape shape = images ? Shape{batch, 28, 28, 1} : Shape{batch, 784};
  const NDArray features = RandomUniform(shape, 0, 1, 1), labels = RandomIntegers({batch}, 0, 10, 2);
  NDArray gradients = Zeros(network.gradients().shape());
  double sum = 0;
  for (int i = 0; i < steps; ++i) sum += argv[1][0] == 't' ? TapeOnce(network, gradients, features, labels) : HandOnce(network, gradients, features, labels);
  std::printf("%f\n", sum);
}
