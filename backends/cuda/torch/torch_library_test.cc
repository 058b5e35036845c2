// The shared library as PyTorch's CUDAPluggableAllocator opens and calls it, on the emulated devices: this program has
// nothing else of Tidepool.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "gtest/gtest.h"

namespace {

constexpr char kLibrary[] = "backends/cuda/torch/libtidepool_torch_emulated.so";

class TorchLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    Look("tidepool_torch_malloc", &malloc_);
    Look("tidepool_torch_free", &free_);
    Look("tidepool_device_bytes", &bytes_);
    Look("tidepool_set_device_limit", &limit_);
    Look("tidepool_memory_report", &report_);
  }
  template <typename Function>
  void Look(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    ASSERT_NE(*function, nullptr) << name;
  }

  void* library_ = nullptr;
  void* (*malloc_)(size_t, int, void*) = nullptr;
  void (*free_)(void*, size_t, int, void*) = nullptr;
  int64_t (*bytes_)(int) = nullptr;
  bool (*limit_)(int, int64_t) = nullptr;
  const char* (*report_)() = nullptr;
};

TEST_F(TorchLibraryTest, BlocksAreHadAndGivenBackAndOnTheLedger) {
  ASSERT_EQ(bytes_(0), 0);
  void* const first = malloc_(1 << 20, 0, nullptr);  // PyTorch's default stream is the legacy one
  void* const second = malloc_(1 << 20, 1, nullptr);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 256, 0u);
  EXPECT_EQ(bytes_(0), 1 << 20);
  EXPECT_EQ(bytes_(1), 1 << 20);
  EXPECT_NE(std::string(report_()).find("cuda:1"), std::string::npos) << report_();
  free_(first, 1 << 20, 0, nullptr);
  free_(second, 1 << 20, 1, nullptr);
  free_(nullptr, 0, 0, nullptr);
  EXPECT_EQ(malloc_(0, 0, nullptr), nullptr);
  EXPECT_EQ(bytes_(0), 0);
  EXPECT_EQ(bytes_(1), 0);
  EXPECT_EQ(bytes_(15), -1);
}

// As RuntimeError in Python.
TEST_F(TorchLibraryTest, RefusalsAreExceptionsWithWords) {
  ASSERT_TRUE(limit_(0, 2 << 20));
  const auto words = [&](size_t bytes, int device) -> std::string {
    try {
      malloc_(bytes, device, nullptr);
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  EXPECT_NE(words(3 << 20, 0).find("cuda:0"), std::string::npos);
  EXPECT_EQ(bytes_(0), 0);
  EXPECT_TRUE(limit_(0, -1));
  EXPECT_NE(words(size_t{2} << 30, 0).find("cuda:0 refused 2147483648 bytes"), std::string::npos);
  EXPECT_NE(words(1, 15).find("there is no device cuda:15: there are "), std::string::npos);
  EXPECT_FALSE(limit_(-1, 0));
  EXPECT_EQ(bytes_(0), 0);
}

// Python's process has other libraries' symbols of the same names: abseil's, the CUDA runtime's.
TEST_F(TorchLibraryTest, NothingElseIsExported) {
  for (const char* name :
       {"cudaMalloc", "_ZN8tidepool4HostEv", "_ZN8tidepool12MemoryBudget6GlobalEv"}) {
    EXPECT_EQ(dlsym(library_, name), nullptr) << name;
  }
}

}  // namespace
