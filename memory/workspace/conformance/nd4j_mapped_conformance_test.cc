// Memory-mapped workspaces: cases 40 and 63, and 100 to 102 of group I.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/conformance/nd4j_cases.h"

namespace tidepool::nd4j {
namespace {

using ::testing::HasSubstr;

std::string NewPath(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  unlink(path.c_str());
  return path;
}

WorkspaceConfig Mapped(const std::string& path, size_t initial_size) {
  WorkspaceConfig config = WorkspaceConfig::MappedFile(path);
  config.alignment = 16;
  config.initial_size = initial_size;
  return config;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

size_t LengthOf(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return static_cast<size_t>(status.st_size);
}

float Sum(const BufferHandle& floats) {
  const float* values = reinterpret_cast<const float*>(floats->data);
  float sum = 0;
  for (size_t i = 0; i < floats->bytes / 4; ++i) sum += values[i];
  return sum;
}

TEST(Nd4jMapped, Nd4jCase040_ARequestBeyondTheEndSpills) {
  constexpr size_t kSize = 200 * kMiB;
  Workspace workspace("w", Mapped("", kSize));
  EXPECT_EQ(workspace.size(), kSize);
  WorkspaceScope scope(workspace);
  BufferHandle most = Bytes(kSize - 1000);
  BufferHandle floats = F(1000);
  float* values = reinterpret_cast<float*>(floats->data);
  for (int i = 0; i < 1000; ++i) values[i] = 1;
  EXPECT_EQ(Sum(floats), 1000);
  EXPECT_EQ(workspace.spilled_count(), 1);
  EXPECT_EQ(workspace.spilled_bytes(), 4000);
  most->data[kSize - 1001] = std::byte{1};
}

TEST(Nd4jMapped, Nd4jCase063_AfterDestroyTheFileMayBeDeleted) {
  const std::string path = NewPath("nd4j_case_63");
  Workspace workspace("w", Mapped(path, 4096));
  Cycle(workspace, {100});
  workspace.Destroy();
  EXPECT_EQ(workspace.size(), 0);
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  // Here the workspace goes on: its next cycle makes the file again.
  Cycle(workspace, {100});
  EXPECT_EQ(LengthOf(path), 4096);
}

TEST(Nd4jMapped, Nd4jCase100_ContentsSurviveReopening) {
  const std::string path = NewPath("nd4j_case_100");
  {
    Workspace workspace("w", Mapped(path, 1000000));
    WorkspaceScope scope(workspace);
    BufferHandle ones = F(1000);
    for (int i = 0; i < 1000; ++i) reinterpret_cast<float*>(ones->data)[i] = 1;
    EXPECT_EQ(Sum(ones), 1000);
  }
  Workspace workspace("w", Mapped(path, 1000000));
  WorkspaceScope scope(workspace);
  EXPECT_EQ(Sum(F(1000)), 1000);
}

TEST(Nd4jMapped, Nd4jCase101_ALongNestedPathAndOverflow) {
  std::string path = testing::TempDir();
  for (int i = 0; i < 12; ++i) {
    path += "/a_directory_name_of_some_length_" + std::to_string(i);
    mkdir(path.c_str(), 0700);
  }
  path += "/file";
  unlink(path.c_str());
  ASSERT_GT(path.size(), 400);
  Workspace workspace("w", Mapped(path, 200 * kMiB));
  EXPECT_EQ(LengthOf(path), 200 * kMiB);
  WorkspaceScope scope(workspace);
  BufferHandle inside = Bytes(150 * kMiB), spilled = Bytes(100 * kMiB);
  EXPECT_EQ(workspace.offset(), 150 * kMiB);
  EXPECT_EQ(workspace.spilled_bytes(), 100 * kMiB);
  scope.Close();
  unlink(path.c_str());
}

TEST(Nd4jMapped, Nd4jCase102_LengthsAndLearning) {
  const std::string path = NewPath("nd4j_case_102");
  WorkspaceConfig learning = Mapped(path, 4096);
  learning.policy_learning = LearningPolicy::kFirstLoop;
  EXPECT_THAT(MessageOf([&] { Workspace("w", learning); }),
              HasSubstr("policy_location kMmap needs policy_learning kNone"));
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_THAT(MessageOf([&] { Workspace("w", Mapped(path, 0)); }), HasSubstr("nothing to map"));
  EXPECT_NE(access(path.c_str(), F_OK), 0);

  std::ofstream(path) << std::string(10000, 'x');
  EXPECT_EQ(Workspace("w", Mapped(path, 20000)).size(), 20000);  // larger: the file is extended
  EXPECT_EQ(LengthOf(path), 20000);
  EXPECT_EQ(Workspace("w", Mapped(path, 5000)).size(), 20000);  // smaller: the file sets the size
  EXPECT_EQ(Workspace("w", Mapped(path, 0)).size(), 20000);
  EXPECT_EQ(LengthOf(path), 20000);
}

}  // namespace
}  // namespace tidepool::nd4j
