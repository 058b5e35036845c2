// Models that must not be lost: room kept for them, and where they go when their place is gone.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::EndsWith;

std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      testing::TempDir() + "/saving" + std::to_string(getpid()) + "_" + std::to_string(count++);
  fs::create_directory(folder);
  return folder;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

Model NewModel(uint64_t seed) { return MakeModel("mlp", {2, 3, 1}, 4, seed, WorkspaceMode::kNone); }

void ExpectSame(const Model& a, const Model& b) {
  EXPECT_EQ(a.network->parameters().ToVector<float>(), b.network->parameters().ToVector<float>());
}

// Where the folder for temporary files is, as long as this lives.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& folder)
      : before_(getenv("TMPDIR") ? getenv("TMPDIR") : "") {
    setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFolder() {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

// What the format refuses is told before training, not behind it.
TEST(ModelFile, NotesAndNamesThatNoFileHoldsAreRefusedAtOnce) {
  Model model = NewModel(1);
  CheckModelCanBeSaved(model);
  model.notes["labels"] = "\xff";
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model); }),
              IsError(absl::StatusCode::kInvalidArgument, {"metadata value", "expected UTF-8"}));
  model.notes = {{"\xff", "x"}};
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model); }),
              IsError(absl::StatusCode::kInvalidArgument, {"metadata key", "expected UTF-8"}));
  model.notes = {{"large", std::string(100'000'001, 'x')}};
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model); }),
              IsError(absl::StatusCode::kInvalidArgument, {"expected at most 100000000"}));
  model.notes.clear();
  model.name = "\xff";
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model); }),
              IsError(absl::StatusCode::kInvalidArgument, {"expected UTF-8"}));
}

TEST(ModelFile, TheRoomThatIsReservedIsWhatTheFileTakes) {
  const std::string path = NewFolder() + "/model";
  const Model model = NewModel(1);
  SaveModel(model, path);
  const auto size = static_cast<int64_t>(fs::file_size(path));
  // A limit of just that size is enough, one byte less is not.
  const auto code_under = [&](int64_t limit) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit bytes = {static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
      setrlimit(RLIMIT_FSIZE, &bytes);
      _exit(CatchStatus([&] { ReserveModelFile(model, path); }).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(code_under(size), 0);
  EXPECT_EQ(code_under(size - 1), 1);
  EXPECT_THAT(FilesIn(fs::path(path).parent_path()), ElementsAre("model"));
}

TEST(ModelFile, AModelWhosePlaceIsTakenGoesBesideIt) {
  const std::string folder = NewFolder(), path = folder + "/model";
  const Model model = NewModel(1), other = NewModel(2);
  SaveModelAnywhere(model, path);
  EXPECT_THAT(FilesIn(folder), ElementsAre("model"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(
      ErrorOf([&] { SaveModelAnywhere(model, path); }),
      IsError(StatusCode::kFailedPrecondition,
              {"write " + path + ": Is a directory; the model is in " + path + ".unsaved"}));
  EXPECT_THAT(ErrorOf([&] { SaveModelAnywhere(other, path); }).message(),
              EndsWith("; the model is in " + path + ".unsaved-2"));
  EXPECT_THAT(FilesIn(folder), ElementsAre("model", "model.unsaved", "model.unsaved-2"));
  ExpectSame(LoadModel(path + ".unsaved"), model);
  ExpectSame(LoadModel(path + ".unsaved-2"), other);
}

TEST(ModelFile, AModelWhoseFolderIsGoneGoesWhereTemporaryFilesAre) {
  const std::string folder = NewFolder(), elsewhere = NewFolder();
  const TemporaryFolder here(elsewhere);
  const Model model = NewModel(3);
  EXPECT_THAT(ErrorOf([&] { SaveModelAnywhere(model, folder + "/gone/model"); }),
              IsError(StatusCode::kNotFound,
                      {"No such file", "; the model is in " + elsewhere + "/model.unsaved"}));
  ExpectSame(LoadModel(elsewhere + "/model.unsaved"), model);
  // Long names are cut, not refused.
  const std::string name(255, 'n');
  fs::create_directory(folder + "/" + name);
  EXPECT_THAT(ErrorOf([&] { SaveModelAnywhere(model, folder + "/" + name); }).message(),
              EndsWith(folder + "/" + name.substr(0, 200) + ".unsaved"));
}

TEST(ModelFile, WhereNothingCanBeWrittenTheFirstErrorIsTold) {
  const std::string folder = NewFolder();
  const TemporaryFolder nowhere("/proc");  // where nobody makes files
  const Error error = ErrorOf([&] { SaveModelAnywhere(NewModel(1), folder + "/gone/model"); });
  EXPECT_THAT(error, IsError(StatusCode::kNotFound, {folder + "/gone/model", "No such file"}));
  EXPECT_EQ(error.message().find("the model is in"), std::string::npos);
}

TEST(ModelFile, AFileBesideIsNobodyElses) {
  const std::string folder = NewFolder(), path = folder + "/model";
  std::ofstream(path + ".epoch-3") << "precious";
  EXPECT_EQ(SaveModelBeside(NewModel(1), path, ".epoch-3"), path + ".epoch-3-2");
  fs::create_symlink("/dev/full", path + ".epoch-3-3");
  EXPECT_EQ(SaveModelBeside(NewModel(1), path, ".epoch-3"), path + ".epoch-3-4");
  EXPECT_EQ(fs::file_size(path + ".epoch-3"), 8u);
}

}  // namespace
}  // namespace tidepool::nn
