// Linking it lets steps on CUDA devices be captured (ndarray/capture/step_capture.h).
#include <memory>

#include "tidepool/backends/cuda/graphs/cuda_graph.h"
#include "tidepool/ndarray/capture/step_capture.h"

namespace tidepool::cuda {
namespace {

class CudaStep final : public CapturedStep {
 public:
  explicit CudaStep(uint8_t index) : graph_(index) {}

  void Capture(absl::FunctionRef<void()> step) override { graph_.Capture(step); }
  void Launch() override { graph_.Launch(); }
  void Forget() override { graph_.Forget(); }
  size_t nodes() const override { return graph_.nodes(); }

 private:
  CudaGraph graph_;
};

std::unique_ptr<CapturedStep> Make(uint8_t index) { return std::make_unique<CudaStep>(index); }

const StepCaptureRegistrar registrar(DeviceType::kCuda, &Make);

}  // namespace
}  // namespace tidepool::cuda
