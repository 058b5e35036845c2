// tidepool train --distributed under mpirun, as a user runs it.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/tools/testing/run_job.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#define SKIP_WITHOUT_MPIRUN() \
  if (Mpirun().empty()) GTEST_SKIP() << "no mpirun: openmpi-bin is not installed"

std::vector<std::string> Train(std::vector<std::string> more) {
  more.insert(more.begin(),
              {"train", "--data", DataPath("examples/data/mnist"), "--epochs=1", "--threads=1"});
  return more;
}

RunResult Job(int ranks, std::vector<std::string> more, const RunOptions& options = {}) {
  more.insert(more.begin(), "--distributed");
  return RunJob(ranks, DataPath("tools/tidepool"), Train(std::move(more)), options);
}

double AccuracyIn(const std::string& out) {
  const size_t at = out.find("test accuracy ");
  return at == std::string::npos ? -1 : std::atof(out.c_str() + at + 14);
}

TEST(TidepoolDistributed, FourRanksAreOneLogOneModelAndTheAccuracyOfOneProcess) {
  SKIP_WITHOUT_MPIRUN();
  const std::string folder = NewFolder();
  const RunResult one =
      RunProgram(DataPath("tools/tidepool"), Train({"--model=mlp", "--save=" + folder + "/one"}));
  const RunResult four = Job(4, {"--model=mlp", "--ranks=4", "--save=" + folder + "/four"});
  ASSERT_EQ(four.status, 0) << four.err;
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_NEAR(AccuracyIn(four.out), AccuracyIn(one.out), 0.01);
  EXPECT_GT(AccuracyIn(four.out), 0.85);
  EXPECT_THAT(four.out,
              AllOf(HasSubstr("batch 64 on 4 ranks"), HasSubstr("examples 1000  classes 10")));
  // Rank 0 alone speaks.
  const size_t at = four.out.find("training and");
  EXPECT_EQ(four.out.find("training and", at + 1), std::string::npos);
  EXPECT_EQ(FilesIn(folder).size(), 2u);
  EXPECT_EQ(std::filesystem::file_size(folder + "/one"),
            std::filesystem::file_size(folder + "/four"));
}

TEST(TidepoolDistributed, AJobWithoutMpirunHasOneRankAndSaysSoWhereMoreAreExpected) {
  const RunResult alone =
      RunProgram(DataPath("tools/tidepool"), Train({"--distributed", "--ranks=4", "--model=mlp"}));
  EXPECT_NE(alone.status, 0);
  if (Mpirun().empty()) {
    EXPECT_THAT(alone.err, HasSubstr("//nn/distributed:mpi"));
  } else {
    EXPECT_THAT(alone.err, AllOf(HasSubstr("a job of 1 ranks, expected 4"),
                                 HasSubstr("was it started by mpirun")));
  }
}

TEST(TidepoolDistributed, FlagsOfJobsAreRefusedWithoutOne) {
  for (const std::string flag : {"--ranks=4", "--checkpoints=x", "--checkpoint_every=5",
                                 "--shard_updater", "--shard_parameters", "--rank_limit=-5s"}) {
    EXPECT_THAT(
        RunProgram(DataPath("tools/tidepool"), Train({flag})).err,
        HasSubstr("flag " + flag.substr(0, flag.find('=')) + " is set without --distributed"));
  }
  EXPECT_THAT(RunProgram(DataPath("tools/tidepool"), Train({"--distributed", "--graphs"})).err,
              HasSubstr("--distributed: not with --graphs"));
  EXPECT_THAT(
      RunProgram(DataPath("tools/tidepool"), Train({"--distributed", "--checkpoint_every=5"})).err,
      HasSubstr("flag --checkpoint_every is 5 without a folder, expected --checkpoints"));
  EXPECT_THAT(
      RunProgram(DataPath("tools/tidepool"), Train({"--distributed", "--memory_profile=x"})).err,
      HasSubstr("--memory_profile"));
  EXPECT_THAT(RunProgram(DataPath("tools/tidepool"), Train({"--distributed", "--device=cuda"})).err,
              HasSubstr("expected //nn/distributed:nccl among the program's deps"));
}

// Each rank would take its parts of other batches, and nobody would see.
TEST(TidepoolDistributed, RanksThatWereStartedWithOtherFlagsAreRefused) {
  SKIP_WITHOUT_MPIRUN();
  const std::string program = DataPath("tools/tidepool");
  for (const auto& [flag, words] : std::vector<std::pair<std::string, std::string>>{
           {"--seed=2", "rank 1: data: found batches of 64 of 8000 examples by seed 2, expected"},
           {"--batch=65", "rank 1: data: found batches of 65 of 8000 examples by seed 1, expected"},
           {"--epochs=2", "rank 1: --epochs: found 2, expected 1, as rank 0 has"}}) {
    std::vector<std::string> both = Train({"--distributed", "--model=mlp"});
    std::vector<std::string> other = Train({"--distributed", "--model=mlp"});
    other.push_back(flag);
    both.insert(both.end(), {":", "-n", "1", program});
    both.insert(both.end(), other.begin(), other.end());
    const RunResult result = RunJob(1, program, both);
    EXPECT_NE(result.status, 0) << flag;
    EXPECT_THAT(result.err, HasSubstr(words));
  }
}

// What one rank meets ends the job, in words that all see.
TEST(TidepoolDistributed, AnErrorOfRank0EndsTheJob) {
  SKIP_WITHOUT_MPIRUN();
  const RunResult result = Job(3, {"--model=mlp", "--save=/nonexistent/folder/model"});
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("distributed: rank 0 failed: flag --save: "));
  // Once.
  const size_t at = result.err.find("/nonexistent/folder");
  EXPECT_EQ(result.err.find("rank 0 failed", at), std::string::npos);
}

// Between parameters of the same steps whose gradients were added up in another order. A
// batch that is left out moves them by 0.06.
constexpr float kRounding = 5e-4f;

// All parameters of a saved model, whose file has a length, a header and then them.
std::vector<float> ParametersIn(const std::string& path) {
  const std::string file = ReadWhole(path);
  uint64_t header = 0;
  if (file.size() < sizeof(header)) return {};
  std::memcpy(&header, file.data(), sizeof(header));
  const size_t begin = sizeof(header) + header;
  std::vector<float> values(begin < file.size() ? (file.size() - begin) / sizeof(float) : 0);
  std::memcpy(values.data(), file.data() + begin, values.size() * sizeof(float));
  return values;
}

// Behind which batch the newest checkpoint of a first epoch is; 0 without any. What a rank that was
// killed has begun to write is none.
int64_t NewestIn(const std::string& checkpoints) {
  int64_t newest = 0;
  if (!std::filesystem::exists(checkpoints)) return newest;
  for (const std::string& file : FilesIn(checkpoints)) {
    if (file.ends_with(".safetensors")) newest = std::atoll(file.c_str() + std::strlen("step-"));
  }
  return newest;
}

// What the others say of a rank that was killed: its number, how far it has come, and the first
// collective to which it has not, of a step behind the newest checkpoint.
void ExpectNamedWithItsPlace(const std::string& err, int rank, int64_t newest, int64_t every) {
  const std::regex verdict(
      "rank ([0-9]+) has died \\(its connection is closed\\), last heard of at step [0-9]+, with "
      "collective ([0-9]+) done; all had come to collective ([0-9]+) at step ([0-9]+); (?:the "
      "others were in|the ranks differ first at|this rank (?:was in|had done)) collective "
      "([0-9]+)[^\\[]* at step ([0-9]+): [-a-z]+[^\\[]* \\[[^\\]]+\\]");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(err, found, verdict)) << err;
  const auto number = [&](size_t i) { return std::atoll(found[i].str().c_str()); };
  EXPECT_EQ(number(1), rank);
  EXPECT_GE(number(5), number(2)) << err;  // what it had done the others have begun
  EXPECT_GE(number(5), number(3)) << err;
  for (const size_t step : {4, 6}) {
    EXPECT_GE(number(step), newest - 1) << err;  // a checkpoint is of a step's end
    EXPECT_LE(number(step), newest + every) << err;
  }
  EXPECT_GE(number(6), number(4)) << err;
}

// Kills a rank at random points, again and again, until so many were; jobs have so many ranks, in
// turns. Where that is one number the bits are those of a job that never stopped, else the sums'
// order differs. TIDEPOOL_TEST_KILLS says how many in the place of `kills`, TIDEPOOL_TEST_SEED
// repeats the points.
void ExpectTheSameParametersAfterKills(int kills, const std::vector<int>& ranks,
                                       const std::vector<std::string>& model) {
  if (const char* const wanted = std::getenv("TIDEPOOL_TEST_KILLS")) kills = std::atoi(wanted);
  const char* const wanted_seed = std::getenv("TIDEPOOL_TEST_SEED");
  const unsigned seed = wanted_seed != nullptr
                            ? static_cast<unsigned>(std::strtoul(wanted_seed, nullptr, 10))
                            : std::random_device()();
  SCOPED_TRACE("TIDEPOOL_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string folder = NewFolder(), checkpoints = folder + "/checkpoints";
  const auto flags = [&](const std::string& name, const std::vector<std::string>& others = {}) {
    std::vector<std::string> all = model;
    all.push_back("--save=" + folder + "/" + name);
    all.insert(all.end(), others.begin(), others.end());
    return all;
  };
  constexpr int64_t kEvery = 3;
  // A place in the data is that of the steps, however far batches were made ahead of them.
  const std::vector<std::string> with_checkpoints = {"--checkpoint_every=" + std::to_string(kEvery),
                                                     "--prefetch=3",
                                                     "--checkpoints=" + checkpoints};
  const RunResult undisturbed = Job(ranks[0], flags("undisturbed"));
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
  const auto expect_same = [&] {
    if (ranks.size() == 1) {
      EXPECT_TRUE(ReadWhole(folder + "/disturbed") == ReadWhole(folder + "/undisturbed"))
          << "other parameters than without kills";
      return;
    }
    const std::vector<float> found = ParametersIn(folder + "/disturbed"),
                             expected = ParametersIn(folder + "/undisturbed");
    ASSERT_EQ(found.size(), expected.size());
    ASSERT_GT(found.size(), 1000u);
    float largest = 0;
    for (size_t i = 0; i < found.size(); ++i)
      largest = std::max(largest, std::abs(found[i] - expected[i]));
    EXPECT_LT(largest, kRounding);
  };
  const auto expect_goes_on = [&](const RunResult& result, int64_t newest) {
    if (newest == 0) return;
    EXPECT_THAT(result.out,
                HasSubstr("goes on behind batch " + std::to_string(newest) + " of epoch 1"));
  };

  int done = 0, run = 0;
  for (; run < 20 * kills && done < kills; ++run) {
    const int together = ranks[static_cast<size_t>(run) % ranks.size()];
    const int whose = static_cast<int>(random() % static_cast<unsigned>(together));
    const auto pause = std::chrono::milliseconds(random() % 300);
    std::filesystem::remove_all(folder + "/disturbed");
    const int64_t before = NewestIn(checkpoints);
    std::atomic<bool> ended{false};
    bool killed = false;
    std::thread killer;
    RunOptions options;
    options.on_start = [&](int pid) {
      killer = std::thread([&, pid] {
        // Some checkpoints later than when it began, and at any point between two.
        while (!ended && NewestIn(checkpoints) == before)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(pause);
        const int rank = ended ? 0 : PidOfRank(pid, whose);
        killed = rank > 0 && kill(rank, SIGKILL) == 0;
      });
    };
    const RunResult result = Job(together, flags("disturbed", with_checkpoints), options);
    ended = true;
    killer.join();
    expect_goes_on(result, before);
    if (result.status == 0) {
      // It came to its end first, as it should: from the beginning again.
      expect_same();
      std::filesystem::remove_all(checkpoints);
      continue;
    }
    ASSERT_TRUE(killed) << result.err;
    ++done;
    ExpectNamedWithItsPlace(result.err, whose, NewestIn(checkpoints), kEvery);
    if (whose == 0) {
      EXPECT_THAT(result.err, HasSubstr("; this rank "));
    }
  }
  EXPECT_EQ(done, kills);
  const int64_t newest = NewestIn(checkpoints);
  std::filesystem::remove_all(folder + "/disturbed");
  const RunResult last =
      Job(ranks[static_cast<size_t>(run) % ranks.size()], flags("disturbed", with_checkpoints));
  ASSERT_EQ(last.status, 0) << last.err;
  EXPECT_GT(newest, 0);
  expect_goes_on(last, newest);
  expect_same();
}

TEST(TidepoolDistributed, ARankThatIsKilledIsNamedAndTheJobGoesOnToTheSameBits) {
  SKIP_WITHOUT_MPIRUN();
  ExpectTheSameParametersAfterKills(3, {4}, {"--model=lenet", "--batch=16"});
}

// Parameters, gradients and the updater's state are lost with a rank that has them in parts.
TEST(TidepoolDistributed, ARankThatIsKilledWithItsPartsOfTheParametersIsNoLoss) {
  SKIP_WITHOUT_MPIRUN();
  ExpectTheSameParametersAfterKills(2, {4}, {"--model=lenet", "--batch=16", "--shard_parameters"});
}

// As where the machine of the rank that is lost stays away, and comes back.
TEST(TidepoolDistributed, AfterARankIsKilledTheJobGoesOnWithAnyNumberOfRanks) {
  SKIP_WITHOUT_MPIRUN();
  ExpectTheSameParametersAfterKills(3, {4, 2, 3}, {"--model=mlp", "--batch=16"});
}

TEST(TidepoolDistributed, AJobGoesOnWithAnotherNumberOfRanks) {
  SKIP_WITHOUT_MPIRUN();
  const std::string folder = NewFolder();
  const std::string checkpoints = "--checkpoints=" + folder + "/checkpoints";
  ASSERT_EQ(
      Job(4, {"--model=mlp", "--schedule=constant", "--checkpoint_every=50", checkpoints}).status,
      0);
  ASSERT_EQ(FilesIn(folder + "/checkpoints"),
            (std::vector<std::string>{"step-000000050.safetensors", "step-000000100.safetensors"}));
  const RunResult result =
      Job(3, {"--model=mlp", "--schedule=constant", "--shard_updater", checkpoints});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("on 3 ranks"), HasSubstr("goes on behind batch 100 of epoch 1")));
  const RunResult other = Job(2, {"--model=mlp", "--schedule=constant", "--batch=32", checkpoints});
  EXPECT_NE(other.status, 0);
  EXPECT_THAT(other.err,
              HasSubstr("batches of 64 of 8000 examples by seed 1, expected batches of 32"));
}

// Whole parameters and parts are the same files, and the same bits.
TEST(TidepoolDistributed, ParametersInPartsAreThoseOfWholeOnes) {
  SKIP_WITHOUT_MPIRUN();
  const std::string folder = NewFolder();
  const std::string checkpoints = "--checkpoints=" + folder + "/checkpoints";
  const RunResult whole = Job(3, {"--model=mlp", "--save=" + folder + "/whole"});
  const RunResult parts = Job(3, {"--model=mlp", "--shard_parameters", "--checkpoint_every=50",
                                  checkpoints, "--save=" + folder + "/parts"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  ASSERT_EQ(parts.status, 0) << parts.err;
  EXPECT_TRUE(ReadWhole(folder + "/parts") == ReadWhole(folder + "/whole"));
  EXPECT_EQ(AccuracyIn(parts.out), AccuracyIn(whole.out));
  EXPECT_THAT(parts.out, HasSubstr("examples 1000  classes 10"));
  // From what three ranks had in parts, two with parts and one without.
  for (const int ranks : {2, 1}) {
    std::vector<std::string> flags = {"--model=mlp", checkpoints};
    if (ranks > 1) flags.push_back("--shard_parameters");
    const RunResult result = Job(ranks, flags);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("goes on behind batch 100 of epoch 1"));
    EXPECT_NEAR(AccuracyIn(result.out), AccuracyIn(whole.out), 0.01);
  }
}

// Stopped, not dead: its connection stays open.
TEST(TidepoolDistributed, ARankThatHangsIsNamedWithinTheLimit) {
  SKIP_WITHOUT_MPIRUN();
  const std::string folder = NewFolder(), checkpoints = folder + "/checkpoints";
  RunOptions options;
  std::thread stopper;
  options.on_start = [&](int pid) {
    stopper = std::thread([&, pid] {
      while (!std::filesystem::exists(checkpoints) || FilesIn(checkpoints).empty())
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const int rank = PidOfRank(pid, 2);
      if (rank > 0) kill(rank, SIGSTOP);
    });
  };
  const RunResult result = Job(4,
                               {"--model=lenet", "--epochs=1000", "--rank_limit=4s",
                                "--checkpoint_every=3", "--checkpoints=" + checkpoints},
                               options);
  stopper.join();
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 2"), HasSubstr("4 s"), HasSubstr("at step")));
}

}  // namespace
}  // namespace tidepool::tools
