// Inputs that never end, or say that they are larger than they are: the command takes no more
// memory than for any other.
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/nn/data/testing/gzip_writer.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kMostAddresses = -1;  // AddressSanitizer's shadow alone has more
constexpr int64_t kMostBytes = 512 * kMiB;
#else
constexpr int64_t kMostAddresses = int64_t{4} << 30;  // ends a command that is wrong
constexpr int64_t kMostBytes = 64 * kMiB;
#endif

class EndlessInput : public testing::Test {
 protected:
  EndlessInput() : folder_(NewFolder()) {
    nn::SaveModel(nn::MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kNone),
                  folder_ + "/model");
  }
  RunResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(DataPath("tools/tidepool"), arguments,
                      {.folder = folder_, .address_bytes = kMostAddresses});
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& part) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, testing::StartsWith("tidepool " + arguments[0] + ": "));
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_LT(result.peak_bytes, kMostBytes);
    std::printf("%lld KiB: %s", static_cast<long long>(result.peak_bytes >> 10),
                result.err.c_str());
  }
  // By all three commands that read images, with so many labels.
  void ExpectNoImages(const std::string& images, const std::string& part,
                      uint32_t labels = 1) const {
    const std::string zeros = Idx({labels}, std::string(labels, '\0'));
    Write("labels", zeros);
    ExpectRefused({"predict", "--model_file=model", "--images=" + images}, part);
    ExpectRefused({"evaluate", "--model_file=model", "--images=" + images, "--labels=labels"},
                  part);
    std::filesystem::create_directory(folder_ + "/data");
    const std::string train = folder_ + "/data/train-images-idx3-ubyte";
    std::filesystem::remove(train);
    std::filesystem::create_symlink(images[0] == '/' ? images : "../" + images, train);
    Write("data/train-labels-idx1-ubyte", zeros);
    Write("data/t10k-images-idx3-ubyte.gz", "");
    Write("data/t10k-labels-idx1-ubyte", "");
    ExpectRefused({"train", "--data=data", "--model=mlp", "--save=new"}, part);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/new"));
  }

  std::string folder_;
};

TEST_F(EndlessInput, OfDevices) {
  for (const std::string device : {"/dev/zero", "/dev/full"}) {
    ExpectRefused({"plan", "--input=" + device},
                  device + ":1: found a line of more than 65536 bytes, expected fields");
    ExpectNoImages(device, ": byte 2: IDX element type: found 0x00, expected 0x08");
    ExpectRefused({"predict", "--model_file=" + device, "--images=images"},
                  device + ": found a pipe or device");
  }
}

// All within the limit of a file of images, so that only the file itself can refuse them.
TEST_F(EndlessInput, OfHeadersThatSayTheyHaveThreeGigabytes) {
  const std::vector<uint32_t> many = {4'000'000, 28, 28};
  const std::string few = ", expected 3136000000 for dimensions [4000000,28,28]";
  Write("plain", Idx(many, ""));
  ASSERT_EQ(std::filesystem::file_size(folder_ + "/plain"), 16);
  ExpectNoImages("plain", ": byte 16: IDX data: found 0 bytes, too few" + few, many[0]);
  Write("packed.gz", Gzip(Idx(many, "")));
  ExpectNoImages("packed.gz", ": byte 16: IDX data: found 0 bytes, too few" + few, many[0]);
  ExpectRefused({"predict", "--model_file=plain", "--images=plain"},
                "plain: byte 0: header length");
}

// 3 GB that are there, though no model takes them.
TEST_F(EndlessInput, OfTrueImagesOfAnotherSize) {
  Write("large", Idx({4'000'000, 28, 27}, ""));
  std::filesystem::resize_file(folder_ + "/large", 16 + int64_t{4'000'000} * 28 * 27);
  Write("labels", Idx({4'000'000}, std::string(4'000'000, '\0')));
  const std::string part = "large: images are [28, 27, 1], expected [28, 28, 1]";
  ExpectRefused({"predict", "--model_file=model", "--images=large"}, part);
  ExpectRefused({"evaluate", "--model_file=model", "--images=large", "--labels=labels"}, part);
}

// 3.5 MB that inflate to 3.6 GB, by members of which the first says what there is.
TEST_F(EndlessInput, OfCompressedFilesWhoseDimensionsAreWrong) {
  const std::string zeros = Gzip(std::string(8 * kMiB, '\0'), 9);
  const auto bomb = [&](const std::vector<uint32_t>& dims) {
    std::string bytes = Gzip(Idx(dims, ""));
    for (int i = 0; i < 450; ++i) bytes += zeros;
    Write("bomb.gz", bytes);
    return bytes.size();
  };
  EXPECT_LT(bomb({1000, 28, 28}), 4 * kMiB);
  ExpectNoImages("bomb.gz", ": byte 784016: IDX data: found more than 784000 bytes, too many",
                 1000);
  bomb({60'000});
  ExpectNoImages("bomb.gz", ": byte 3: IDX rank: found 1, expected 3");
  bomb({4'000'000'000, 28, 28});
  ExpectNoImages("bomb.gz", "which are 3136000000000 bytes, expected at most");
}

}  // namespace
}  // namespace tidepool::tools
