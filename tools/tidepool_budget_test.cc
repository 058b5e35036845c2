// tidepool train within budgets, and what it says to flags of budgets that nobody could keep to.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kTestImages = 200;

// As MNIST has them, of as many pixels, which say what they are.
std::string FewImages() {
  const std::string folder = NewFolder();
  for (const auto& [part, count] : {std::pair{"train", 320}, std::pair{"t10k", kTestImages}}) {
    std::string pixels, labels;
    const auto number = [](std::string& to, int value) {
      for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 255);
    };
    for (const int head : {0x803, count, 28, 28}) number(pixels, head);
    for (const int head : {0x801, count}) number(labels, head);
    for (int i = 0; i < count; ++i) {
      labels += static_cast<char>(i % 10);
      for (int p = 0; p < 28 * 28; ++p) pixels += static_cast<char>((i % 10 * p + i) % 251);
    }
    std::ofstream(folder + "/" + part + "-images-idx3-ubyte", std::ios::binary) << pixels;
    std::ofstream(folder + "/" + part + "-labels-idx1-ubyte", std::ios::binary) << labels;
  }
  return folder;
}

RunResult Train(const std::string& folder, const std::string& process_limit,
                std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"train", "--data=.", "--model=lenet", "--epochs=1", "--threads=1", "--save=model"});
  if (process_limit.empty())
    unsetenv("TIDEPOOL_MEMORY_BUDGET");
  else
    setenv("TIDEPOOL_MEMORY_BUDGET", process_limit.c_str(), 1);
  const RunResult result = RunProgram(DataPath("tools/tidepool"), more, {.folder = folder});
  unsetenv("TIDEPOOL_MEMORY_BUDGET");
  return result;
}

// From the number of examples to the end of the confusion matrix.
std::string EvaluationOf(const std::string& out) {
  const size_t begin = out.find("examples 200  classes 10\n"), matrix = out.find("predicted\n");
  if (begin == std::string::npos || matrix == std::string::npos) return "no evaluation in " + out;
  return out.substr(begin, out.find("\n\n", matrix) - begin);
}

int64_t NumberBehind(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + words.size());
}

// A step has a plan for the limit, and what follows it has none: whatever the limit leaves, the model is saved and evaluated.
TEST(TidepoolBudget, WhatHasRoomToTrainIsSavedAndEvaluatedByFewerImagesAtOnce) {
  const std::string folder = FewImages(), model = folder + "/model";
  const RunResult unlimited = Train(folder, "");
  ASSERT_EQ(unlimited.status, 0) << unlimited.err;
  EXPECT_THAT(unlimited.out, Not(HasSubstr("images at once")));
  const std::string expected = EvaluationOf(unlimited.out), saved = ReadWhole(model);
  int64_t least = 64, enough = 0;
  constexpr int64_t kStep = 64 << 10;
  int runs = 0;
  for (int64_t limit = int64_t{10} << 20; enough == 0 && limit > kStep; limit -= kStep) {
    SCOPED_TRACE(limit);
    std::filesystem::remove(model);
    const RunResult result = Train(folder, std::to_string(limit));
    if (result.status != 0) {
      EXPECT_THAT(result.err, HasSubstr("would have been enough"));
      enough = NumberBehind(result.err, "; a limit of ");
      EXPECT_FALSE(std::filesystem::exists(model));
      break;
    }
    ++runs;
    EXPECT_EQ(EvaluationOf(result.out), expected);
    EXPECT_EQ(ReadWhole(model), saved);
    const int64_t at_once = NumberBehind(result.out, "\nevaluated ");
    if (at_once == 0) continue;
    EXPECT_THAT(result.out, HasSubstr(" images at once: the budget has no room for more\n"));
    EXPECT_LT(at_once, 64);
    EXPECT_EQ(64 % at_once, 0);
    least = std::min(least, at_once);
  }
  EXPECT_GT(runs, 10);
  EXPECT_LE(least, 16);
  // What a refusal names is enough for all of it.
  const RunResult named = Train(folder, std::to_string(enough));
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(EvaluationOf(named.out), expected);
}

TEST(TidepoolBudget, LimitsOfAFlagHold) {
  const std::string folder = FewImages();
  const auto with = [&](const std::string& limits) {
    return Train(folder, "", {"--memory_limits=" + limits});
  };
  EXPECT_EQ(with("owner nobody=1KiB, soft 1MiB").status, 0);
  RunResult result = with("process=1MiB");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("limit of the process is 1048576 bytes"));
  result = with("owner network=100KiB");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("the limit of owner [network] is 102400 bytes"));
  result = with("host=1MiB");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("the limit of device host is 1048576 bytes"));
  // What it leaves is what steps are planned for, as of the process's.
  result = with("host=64MiB");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(", its budget is "));
  result = with("network=1MiB");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("tidepool train: flag --memory_limits: \"network=1MiB\": found "
                                    "\"network\" in front of =, expected a device"));
  EXPECT_EQ(result.out, "");
}

TEST(TidepoolBudget, FlagsThatNothingWouldKeepToAreRefusedBeforeAnythingIsRead) {
  const std::string folder = NewFolder(), limit = "64MiB";
  const auto refusal = [&](const std::string& process_limit, std::vector<std::string> flags) {
    const RunResult result = Train(folder, process_limit, std::move(flags));
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    return result.err;
  };
  for (const auto& [name, value] :
       {std::pair{"budget_strategy", "spill"}, std::pair{"budget_strategy", "auto"},
        std::pair{"spill_folder", "/var/tmp"}, std::pair{"spill_compression", "lz4"}}) {
    const std::string flag = std::string("--") + name + "=" + value,
                      found = std::string("flag --") + name + " is \"" + value + "\"";
    EXPECT_EQ(refusal("", {flag}), "tidepool train: " + found +
                                       " without a budget, expected --memory_budget or "
                                       "TIDEPOOL_MEMORY_BUDGET\n");
    EXPECT_EQ(refusal(limit, {flag, "--workspace_mode=none"}),
              "tidepool train: " + found +
                  " where no step is planned, expected --workspace_mode=enabled and no --graphs\n");
    EXPECT_THAT(refusal("", {flag, "--distributed"}),
                AllOf(HasSubstr("flag --distributed: not with "), HasSubstr(name)));
    // With one they are taken: what is not there is the images.
    EXPECT_THAT(refusal("", {flag, "--memory_budget=50%"}), HasSubstr("train-images"));
    EXPECT_THAT(refusal(limit, {flag}), HasSubstr("train-images"));
  }
  EXPECT_THAT(refusal("", {"--memory_budget=process"}),
              HasSubstr("neither the process nor host has a limit"));
  EXPECT_THAT(refusal("", {"--memory_budget=process", "--memory_limits=host=64MiB"}),
              HasSubstr("train-images"));
  EXPECT_EQ(refusal("", {"--memory_budget=5 MB"}),
            "tidepool train: flag --memory_budget is \"5 MB\", expected bytes, such as 67108864, "
            "64MiB, 1.5GiB or 25%\n");
  EXPECT_THAT(refusal("", {"--memory_budget=5 MiB"}), HasSubstr("train-images"));
  EXPECT_THAT(refusal("", {"--memory_budget=50% "}), HasSubstr("train-images"));
  EXPECT_THAT(refusal("", {"--memory_budget= "}), HasSubstr("flag --memory_budget is \" \""));
  for (const std::string strategy : {"recompute", "none"}) {
    for (const std::string flag : {"spill_folder", "spill_compression"}) {
      const std::string value = flag == "spill_folder" ? "/var/tmp" : "lz4";
      EXPECT_EQ(
          refusal("", {"--memory_budget=50%", "--budget_strategy=" + strategy,
                       "--" + flag + "=" + value}),
          "tidepool train: flag --" + flag + " is \"" + value +
              "\" where nothing is spilled, expected --budget_strategy=auto or spill, found " +
              strategy + "\n");
    }
  }
}

}  // namespace
}  // namespace tidepool::tools
