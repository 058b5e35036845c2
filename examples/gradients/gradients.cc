#include <cstdio>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
using namespace tidepool;

int main() {
  // sin(x) from 64 points by a network of one hidden layer.
  const NDArray x = Linspace(-3, 3, 64, DType::kFloat64).Reshape({64, 1}), y = Sin(x);
  NDArray w1 = RandomNormal({1, 16}, 0, 1, DType::kFloat64, 1),
          b1 = RandomNormal({16}, 0, 1, DType::kFloat64, 2);
  NDArray w2 = RandomNormal({16, 1}, 0, 0.3, DType::kFloat64, 3);
  const std::vector<NDArray> parameters = {w1, b1, w2};
  std::vector<NDArray> gradients;
  for (const NDArray& p : parameters) {
    gradients.push_back(Empty(p.shape(), p.dtype(), Place::Heap(MemoryKind::kGradientStandard)));
  }

  Workspace workspace("step");  // learns one step, and serves all others from memory it has
  for (int step = 0; step <= 2000; ++step) {
    WorkspaceScope scope(workspace);
    GradientTape tape;
    for (size_t i = 0; i < parameters.size(); ++i) tape.Watch(parameters[i], gradients[i]);
    const NDArray loss = Mean(Square(MatMul(Tanh(MatMul(x, w1, {}, &b1)), w2) - y));
    if (step == 0) std::printf("%s", tape.Report().c_str());
    if (step % 1000 == 0)
      std::printf("step %d: loss below %g\n", step, loss.Item<double>() < 0.01 ? 0.01 : 10);
    tape.Backward(loss);
    for (size_t i = 0; i < parameters.size(); ++i) {
      NDArray p = parameters[i];
      p -= gradients[i] * 0.1;
    }
  }
  std::printf("requests beside the plan in the last steps: %d\n", workspace.spilled_count() > 0);

  // Written outside of a NoGradientScope and in one: the values are the same, the gradients are not.
  for (const bool is_recorded : {true, false}) {
    NDArray a = Full({2}, 2.0);
    GradientTape tape;
    tape.Watch(a);
    NDArray h = a * 3.0;
    if (is_recorded) {
      h *= 5.0;
    } else {
      const NoGradientScope none;
      h *= 5.0;
    }
    const NDArray loss = Sum(h);
    tape.Backward(loss);
    std::printf("h *= 5 is %s: loss %g, gradient %g\n", is_recorded ? "recorded" : "not recorded",
                loss.Item<float>(), tape.Gradient(a).At<float>({0}));
  }

  try {
    GradientTape tape;
    tape.Watch(w1);
    NDArray h = w1 * 2.0;
    const NDArray loss = Sum(Exp(h) * h);
    h += 1.0;  // the product kept it
    tape.Backward(loss);
  } catch (const Error& error) {
    std::printf("%s\n", error.message().c_str());
  }
}
