// spill_worker PAGES PLANS CYCLES: a program for chaos.py to be rough with. Its workspaces keep pages in
// one file and plans in another, make more than fits so that requests spill, and check what they wrote.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"

namespace tidepool {
namespace {

void CheckFull(const NDArray& array, float value) {
  const float* data = array.data<float>();
  for (int64_t i = 0; i < array.NumElements(); i += 997) {
    if (data[i] != value) {
      ThrowInternal(absl::StrCat("element ", i, ": found ", data[i], ", expected ", value));
    }
  }
}

void Cycle(Workspace& workspace, int cycle) {
  WorkspaceScope scope(workspace);
  const auto value = static_cast<float>(cycle % 1000);
  const NDArray first = Full({100'000 + 10'000 * (cycle % 7)}, value);
  const NDArray second = Full({300'000}, value + 1);
  for (int i = 0; i < 4; ++i) CheckFull(Full({50'000}, value + 2), value + 2);
  CheckFull(first, value);
  CheckFull(second, value + 1);
}

void Run(const std::string& pages, const std::string& plans, int cycles) {
  WorkspaceConfig mapped = WorkspaceConfig::MappedFile(pages);
  mapped.initial_size = size_t{1} << 20;
  Workspace in_file("in a file", mapped), planned("planned");
  const PlansLoaded loaded = planned.LoadPlans(plans);
  std::printf("loaded %zu plans %s\n", loaded.plans, loaded.ignored.c_str());
  for (int cycle = 1; cycle <= cycles; ++cycle) {
    Cycle(in_file, cycle);
    Cycle(planned, cycle);
    if (cycle % 3 == 0) planned.SavePlans(plans);
    std::printf("cycle %d, %llu spills\n", cycle,
                static_cast<unsigned long long>(in_file.stats().spills));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tidepool

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    tidepool::Run(argv[1], argv[2], std::atoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spill_worker: %s\n", error.what());
    return 2;
  }
}
