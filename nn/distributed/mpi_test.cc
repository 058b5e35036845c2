// The transport of Open MPI: rank_program.cc under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tidepool/tools/testing/run_job.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunResult Job(int ranks, const char* what) {
  return RunJob(ranks, DataPath("nn/distributed/rank_program"), {what});
}

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (Mpirun().empty()) GTEST_SKIP() << "no mpirun: openmpi-bin is not installed";
  }
};

TEST_F(Mpi, CollectivesAddGatherAndCopy) {
  for (const int ranks : {2, 5}) {
    const RunResult result = Job(ranks, "collectives");
    EXPECT_EQ(result.status, 0) << ranks << " ranks: " << result.err;
  }
}

TEST_F(Mpi, FourRanksEqualOneRankWithAFourTimesLargerBatchOver100Steps) {
  const RunResult result = Job(4, "training");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("after 100 steps of 4 ranks"));
}

// As on machines of their own, as far as the network goes.
TEST_F(Mpi, RanksHaveNetworkNamespacesAndAddressesOfTheirOwn) {
  const std::string script = DataPath("nn/distributed/run_in_namespaces.sh");
  const std::string program = DataPath("nn/distributed/rank_program");
  for (const char* const what : {"collectives", "hang"}) {
    const RunResult result = RunProgram("/bin/bash", {script, "3", program, what});
    if (result.status == 77) GTEST_SKIP() << result.err;
    if (what[0] == 'c') {
      EXPECT_EQ(result.status, 0) << result.err;
    } else {
      // The heartbeat goes between the namespaces as well.
      EXPECT_NE(result.status, 0);
      EXPECT_THAT(result.err, HasSubstr("rank 1 has not come to collective"));
    }
  }
}

TEST_F(Mpi, ARankThatDoesNotComeIsNamed) {
  const RunResult result = Job(3, "hang");
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 has not come to collective"),
                                HasSubstr("at step 12, where others have waited for 3 s"),
                                HasSubstr("rank 1: not begun")));
}

// Whose data was slow to read. Over TCP, as between machines, where short messages leave a rank
// before others have come to take them.
TEST_F(Mpi, ARankMayComeToTheHeartbeatLate) {
  setenv("OMPI_MCA_btl", "tcp,self", 1);
  const RunResult result = Job(2, "late");
  unsetenv("OMPI_MCA_btl");
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(Mpi, RanksThatDoNotFindEachOtherEndTheJob) {
  const RunResult result = Job(2, "start");
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("the ranks have not found each other within 3 s"));
}

TEST_F(Mpi, RanksThatPartAreToldWhere) {
  const RunResult result = Job(3, "part");
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the ranks differ first at collective"),
                                HasSubstr("all-reduce of 50 f32 [losses]"),
                                HasSubstr("all-reduce of 100 f32 [gradients]")));
}

}  // namespace
}  // namespace tidepool::tools
