// Records what one training step of each network asks its workspace for, as problems for
// `tidepool plan`: FOLDER/residual_net.csv (ResNet-18's blocks on images of 32 x 32, batch 32) and
// FOLDER/lstm.csv (two layers of 128, 50 steps, batch 32).
//
//   bazel run //examples/networks:record_traces -- FOLDER
#include <cstdio>
#include <functional>
#include <string>

#include "tidepool/examples/networks/lstm_classifier.h"
#include "tidepool/examples/networks/residual_net.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace {

void Record(const std::string& path, const std::function<double()>& step) {
  tidepool::Workspace workspace("step", tidepool::WorkspaceConfig::Training());
  for (int i = 0; i < 3; ++i) {
    const tidepool::WorkspaceScope scope(workspace);
    step();
  }
  tidepool::NamedProblem problem;
  problem.buffers = workspace.PlannedRequests();
  for (size_t i = 0; i < problem.buffers.size(); ++i) problem.ids.push_back(std::to_string(i));
  tidepool::WriteProblemFile(path, problem);
  std::printf("%s: %zu requests, planned peak %zu bytes, alive at once at most %zu\n", path.c_str(),
              problem.buffers.size(), static_cast<size_t>(workspace.stats().planned_peak_bytes),
              static_cast<size_t>(workspace.stats().live_lower_bound_bytes));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: record_traces FOLDER; found %d arguments\n", argc - 1);
    return 2;
  }
  using namespace tidepool;  // NOLINT: a program
  constexpr int64_t kBatch = 32;
  const std::string folder = argv[1];
  const NDArray labels = Zeros({kBatch}, DType::kInt64);
  try {
    examples::ResidualNet residual(3, {64, 128, 256, 512}, 10, 1);
    const NDArray images = RandomUniform({kBatch, 32, 32, 3}, -1, 1, 2);
    Record(folder + "/residual_net.csv", [&] { return residual.Step(images, labels, 0.01); });
    examples::LstmClassifier lstm(64, 128, 10, 1);
    const NDArray sequences = RandomUniform({50, kBatch, 64}, -1, 1, 3);
    Record(folder + "/lstm.csv", [&] { return lstm.Step(sequences, labels, 0.01); });
  } catch (const Error& error) {
    std::fprintf(stderr, "record_traces: %s\n", std::string(error.message()).c_str());
    return 1;
  }
  return 0;
}
