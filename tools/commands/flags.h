// Flags that several commands share, and what their values mean.
#ifndef TIDEPOOL_TOOLS_COMMANDS_FLAGS_H_
#define TIDEPOOL_TOOLS_COMMANDS_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "tidepool/memory/device.h"
#include "tidepool/tools/commands/workspace_mode.h"  // IWYU pragma: export

ABSL_DECLARE_FLAG(int, threads);
ABSL_DECLARE_FLAG(int, batch);
ABSL_DECLARE_FLAG(std::string, workspace_mode);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(std::string, model_file);
ABSL_DECLARE_FLAG(std::string, images);
ABSL_DECLARE_FLAG(std::string, labels);

namespace tidepool::tools {

// --device: "host", "cuda" (the first one), "cuda:1", "simulated:0". Throws kInvalidArgument for another
// form; kUnimplemented, kNotFound when no such device is linked or there is none.
Device DeviceOfFlags();
// Throws kInvalidArgument "flag --<name> is not set" for an empty value.
std::string Required(const char* name, const std::string& value);
// Returns `value`; throws kInvalidArgument naming the flag when it is below 1.
int64_t AtLeastOne(const char* name, int64_t value);
// Applies --threads (0: one per processor). Throws kInvalidArgument naming the flag.
void ApplyThreads();

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_FLAGS_H_
