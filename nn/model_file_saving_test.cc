// Models that must not be lost: room kept for them, and where they go when their place is gone.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/layers/shaping.h"
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

// Of its two fields files get none, of which one decides about parameters.
class Half final : public Layer {
 public:
  explicit Half(bool is_scaled = false, int64_t width = 0) : is_scaled_(is_scaled), width_(width) {}
  std::string Kind() const override { return "test_half"; }
  Shape OutputShape(const Shape& input) const override {
    return width_ == 0 ? input : Shape{width_};
  }
  std::vector<ParameterSpec> Parameters(const Shape& input) const override {
    if (!is_scaled_) return {};
    return {{.name = "gain", .shape = input, .initializer = Initializer::Ones()}};
  }
  NDArray Forward(LayerContext& context, const NDArray& x) const override {
    return is_scaled_ ? x * context.parameters[0] : x.Slice(1, 0, width_ == 0 ? 4 : width_);
  }

 private:
  bool is_scaled_;
  int64_t width_;
};

Model ModelOf(std::vector<AnyLayer> layers, int64_t classes) {
  return Model("mine", classes, std::make_unique<Network>(Shape{4}, std::move(layers)));
}

TEST(ModelFile, ParametersThatFieldsDoNotSayAreRefused) {
  RegisterLayer<Half>("test_half");
  const std::string path = NewFolder() + "/half";
  const auto refused = [&](const Model& model, const std::string& what) {
    for (const auto& ask : {std::function<void()>([&] { CheckModelCanBeSaved(model); }),
                            std::function<void()>([&] { SaveModel(model, path); })}) {
      EXPECT_THAT(ErrorOf(ask), IsError(StatusCode::kInvalidArgument,
                                        {"\"mine\" could not be loaded again", what}));
    }
    EXPECT_FALSE(fs::exists(path));
  };
  refused(ModelOf({Half(true), Dense(2)}, 2), "\"0.test_half.gain\" would not be there");
  refused(ModelOf({Half(false, 3), Dense(2)}, 2),
          "\"1.dense.weight\" of shape [2, 3] would be of shape [2, 4]");
  refused(ModelOf({Dense(4), Half(false, 3)}, 3), "its outputs have other shapes");
  CheckModelCanBeSaved(ModelOf({Half(), Dense(2)}, 2));
}

// What LoadModel takes by default is asked before training; who loads may allow more, so that files are written.
TEST(ModelFile, LimitsOfLoadingAreAskedBeforeTraining) {
  const Model model = ModelOf({Dense(4), RepeatVector(1 << 26)}, 4);
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model); }),
              IsError(StatusCode::kInvalidArgument,
                      {"\"mine\" could not be loaded again", "numbers of one example",
                       "at most 134217728 (LoadModel's max_example_elements)"}));
  CheckModelCanBeSaved(model, int64_t{1} << 30);
  EXPECT_THAT(ErrorOf([&] { CheckModelCanBeSaved(model, int64_t{1} << 30, 3); }),
              IsError(StatusCode::kInvalidArgument, {"operations for one example", "at most 3"}));
  const std::string path = NewFolder() + "/large";
  SaveModel(model, path);
  EXPECT_EQ(LoadModel(path, WorkspaceMode::kNone, Host(), int64_t{1} << 30).classes, 4);
}

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
