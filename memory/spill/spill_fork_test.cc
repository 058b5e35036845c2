// A spill file is its process's: a child of fork() is told so, and takes nothing from its parent.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"

namespace tidepool {
namespace {

constexpr size_t kPage = SpillFile::kPageBytes;

bool IsRefused(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == absl::StatusCode::kFailedPrecondition &&
           std::string(error.what()).find("a child of fork()") != std::string::npos;
  }
  return false;
}

TEST(SpillFork, AChildIsRefusedAndTakesNothingFromItsParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer's children of processes with threads end by themselves";
#endif
  auto file = std::make_unique<SpillFile>(SpillFileOptions{.block_bytes = 4 * kPage});
  std::vector<unsigned char> data(64 * kPage);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 4096);
  std::optional<SpilledBytes> kept = file->Write(data.data(), data.size());
  std::optional<SpillTransfer> pending = file->BeginWrite(data.data(), data.size());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::vector<unsigned char> back(data.size());
    bool is_well = IsRefused([&] { file->Write(data.data(), data.size()); });
    is_well &= IsRefused([&] { file->Read(*kept, back.data()); });
    is_well &= IsRefused([&] { file->Trim(); });
    is_well &= pending->is_done();  // nobody waits in a loop for it
    is_well &= IsRefused([&] { pending->Wait(); });
    pending.reset();
    kept.reset();  // frees nothing in the parent's file
    is_well &= file->stats().file_bytes >= static_cast<int64_t>(data.size());
    file.reset();
    SpillFile own({.block_bytes = 4 * kPage});
    const SpilledBytes mine = own.Write(data.data(), data.size());
    own.Read(mine, back.data());
    is_well &= back == data;
    std::_Exit(is_well ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::vector<unsigned char> back(data.size());
  file->Read(*kept, back.data());
  EXPECT_EQ(back, data);
  const SpilledBytes later = pending->Wait();
  std::fill(back.begin(), back.end(), 0);
  file->Read(later, back.data());
  EXPECT_EQ(back, data);
}

}  // namespace
}  // namespace tidepool
