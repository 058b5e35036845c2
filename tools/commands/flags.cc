#include "tidepool/tools/commands/flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/kernel/registry.h"

ABSL_FLAG(int, threads, 0, "threads for kernels; 0: one per processor");
ABSL_FLAG(int, batch, 64, "examples per step; images at once, at most");
ABSL_FLAG(std::string, workspace_mode, "enabled", "enabled, single, separate or none");
ABSL_FLAG(std::string, device, "host",
          "host, cuda:0, ...: where the network and its workspaces are");
ABSL_FLAG(bool, json, false, "as JSON instead of text");
ABSL_FLAG(std::string, model_file, "", "model to load, as train --save writes it");
ABSL_FLAG(std::string, images, "", "IDX file of images, plain or gzip");
ABSL_FLAG(std::string, labels, "", "IDX file of labels, plain or gzip");

namespace tidepool::tools {

Device DeviceOfFlags() {
  try {
    const Device device = DeviceNamed(absl::GetFlag(FLAGS_device));
    GetDeviceProvider(device, "its memory");
    return device;
  } catch (Error& error) {
    error.AddContext("flag --device");
    throw;
  }
}

std::string Required(const char* name, const std::string& value) {
  if (value.empty()) ThrowInvalidArgument(absl::StrCat("flag --", name, " is not set"));
  return value;
}

int64_t AtLeastOne(const char* name, int64_t value) {
  if (value < 1) {
    ThrowInvalidArgument(absl::StrCat("flag --", name, " is ", value, ", expected at least 1"));
  }
  return value;
}

void ApplyThreads() {
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0) return;
  try {
    SetThreadCount(threads);
  } catch (Error& error) {
    error.AddContext("flag --threads");
    throw;
  }
}

}  // namespace tidepool::tools
