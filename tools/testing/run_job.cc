#include "tidepool/tools/testing/run_job.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace tidepool::tools {
namespace {

constexpr char kMpirun[] = "/usr/bin/mpirun";

}  // namespace

std::string Mpirun() { return access(kMpirun, X_OK) == 0 ? kMpirun : ""; }

RunResult RunJob(int ranks, const std::string& program, const std::vector<std::string>& arguments,
                 const RunOptions& options) {
  // A sandbox may not let one process read another's memory, and ranks share processors here.
  // Sockets' paths are to be short.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
  setenv("OMPI_MCA_orte_tmpdir_base", "/tmp", 1);
  setenv("OMPI_MCA_plm_rsh_agent", "/bin/false", 1);  // nothing is started elsewhere
  std::vector<std::string> all = {"--oversubscribe", "-n", std::to_string(ranks), program};
  if (geteuid() == 0) all.insert(all.begin(), "--allow-run-as-root");
  all.insert(all.end(), arguments.begin(), arguments.end());
  return RunProgram(Mpirun(), all, options);
}

int PidOfRank(int pid, int rank) {
  std::ifstream children("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) +
                         "/children");
  const std::string wanted = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  for (int child = 0; children >> child;) {
    std::ifstream environment("/proc/" + std::to_string(child) + "/environ");
    for (std::string variable; std::getline(environment, variable, '\0');) {
      if (variable == wanted) return child;
    }
  }
  return 0;
}

}  // namespace tidepool::tools
