// Starts a job of several ranks by mpirun, for end-to-end tests.
#ifndef TIDEPOOL_TOOLS_TESTING_RUN_JOB_H_
#define TIDEPOOL_TOOLS_TESTING_RUN_JOB_H_

#include <string>
#include <vector>

#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {

// Empty where there is no mpirun: tests are skipped then, saying so.
std::string Mpirun();

// Ranks on this machine, more than it has processors if need be. Output of all ranks is the
// result's.
RunResult RunJob(int ranks, const std::string& program, const std::vector<std::string>& arguments,
                 const RunOptions& options = {});

// The process of a rank of the job that mpirun, of process `pid`, has started; 0: there is none
// (yet).
int PidOfRank(int pid, int rank);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_TESTING_RUN_JOB_H_
