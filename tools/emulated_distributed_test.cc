// tidepool train --distributed --device=cuda, on emulated devices and an emulated NCCL: a job of one rank, as they are of one
// process.
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/tools/testing/run_job.h"
#include "tidepool/tools/testing/run_program.h"

namespace tidepool::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An IDX file of unsigned bytes.
void WriteIdx(const std::string& path, const std::vector<uint32_t>& shape,
              const std::vector<uint8_t>& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  for (const uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift);
  }
  bytes.append(values.begin(), values.end());
  std::ofstream(path, std::ios::binary) << bytes;
}

// Images of 8x8 whose class is the half that is bright: learned within some steps.
void WriteImages(const std::string& folder, const std::string& name, uint32_t count) {
  std::vector<uint8_t> pixels, labels;
  for (uint32_t i = 0; i < count; ++i) {
    labels.push_back(static_cast<uint8_t>(i % 2));
    for (uint32_t at = 0; at < 64; ++at)
      pixels.push_back(static_cast<uint8_t>(at / 32 == i % 2 ? 200 + (i * 7 + at) % 50 : at % 30));
  }
  WriteIdx(folder + "/" + name + "-images-idx3-ubyte", {count, 8, 8}, pixels);
  WriteIdx(folder + "/" + name + "-labels-idx1-ubyte", {count}, labels);
}

RunResult Train(const std::string& folder, std::vector<std::string> more) {
  more.insert(more.begin(), {"train", "--data=" + folder, "--model=mlp", "--epochs=2", "--batch=16",
                             "--threads=1", "--distributed"});
  return RunProgram(DataPath("tools/tidepool_on_emulated_devices"), more);
}

// Behind `words`, up to the line's end.
std::string Behind(const std::string& out, const std::string& words) {
  const size_t at = out.find(words);
  return at == std::string::npos ? "" : out.substr(at, out.find('\n', at) - at);
}

class EmulatedDistributed : public testing::Test {
 protected:
  void SetUp() override {
    if (Mpirun().empty()) GTEST_SKIP() << "no mpirun: openmpi-bin is not installed";
    WriteImages(folder_, "train", 96);
    WriteImages(folder_, "t10k", 32);
  }
  const std::string folder_ = NewFolder();
};

TEST_F(EmulatedDistributed, ARankTrainsOnItsDeviceAsOneDoesOnTheHost) {
  const RunResult host = Train(folder_, {"--save=" + folder_ + "/host"});
  ASSERT_EQ(host.status, 0) << host.err;
  EXPECT_THAT(host.out, HasSubstr("batch 16 on 1 ranks, workspace mode enabled, host"));
  for (const std::string more : {"--prefetch=0", "--prefetch=2", "--shard_updater"}) {
    SCOPED_TRACE(more);
    const RunResult device =
        Train(folder_, {"--device=cuda", "--save=" + folder_ + "/device", more});
    ASSERT_EQ(device.status, 0) << device.err;
    EXPECT_THAT(device.out, AllOf(HasSubstr("workspace mode enabled, cuda:0"),
                                  HasSubstr("test accuracy 1.0000")));
    EXPECT_EQ(Behind(device.out, "test accuracy"), Behind(host.out, "test accuracy"));
    // What was trained there is a model of any machine.
    const RunResult evaluated = RunProgram(DataPath("tools/tidepool_on_emulated_devices"),
                                           {"evaluate", "--model_file=" + folder_ + "/device",
                                            "--images=" + folder_ + "/t10k-images-idx3-ubyte",
                                            "--labels=" + folder_ + "/t10k-labels-idx1-ubyte"});
    EXPECT_EQ(evaluated.status, 0) << evaluated.err;
    EXPECT_THAT(evaluated.out, HasSubstr("accuracy 1.0000"));
  }
}

TEST_F(EmulatedDistributed, AJobGoesOnFromItsCheckpointWhereverItWasMade) {
  const std::string checkpoints = "--checkpoints=" + folder_ + "/run";
  ASSERT_EQ(Train(folder_, {"--device=cuda", "--checkpoint_every=3", checkpoints}).status, 0);
  for (const std::string device : {"--device=cuda", "--device=host"}) {
    const RunResult again = Train(folder_, {device, checkpoints});
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_THAT(again.out, AllOf(HasSubstr("goes on behind batch"), HasSubstr("accuracy 1.0000")));
  }
}

TEST_F(EmulatedDistributed, WhatDevicesCannotIsRefusedInTheFlagsNames) {
  EXPECT_THAT(Train(folder_, {"--device=cuda:1"}).err,
              AllOf(HasSubstr("flag --device is \"cuda:1\" with --distributed, expected host, or"),
                    HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(Train(folder_, {"--device=cuda", "--shard_parameters"}).err,
              HasSubstr("flag --shard_parameters: not with --device=cuda"));
  EXPECT_THAT(Train(folder_, {"--device=cuda", "--graphs"}).err,
              HasSubstr("--distributed: not with --graphs"));
}

}  // namespace
}  // namespace tidepool::tools
