// Files that a command writes at its end, checked at its start.
#ifndef TIDEPOOL_TOOLS_COMMANDS_OUTPUT_PATHS_H_
#define TIDEPOOL_TOOLS_COMMANDS_OUTPUT_PATHS_H_

#include <string>
#include <vector>

namespace tidepool::tools {

// Of an input or an output.
struct FlagPath {
  const char* flag;  // without the dashes
  std::string path;  // empty: not asked for
};

// Throws AtomicFile's errors, naming the flag, for one that cannot be written, and kInvalidArgument
// for two that are the same file, or one that is the same as an input, however they are spelled and
// through links. Leaves nothing behind.
void CheckOutputPaths(const std::vector<FlagPath>& outputs,
                      const std::vector<FlagPath>& inputs = {});

// What LoadImageFolder may read of the folder that is given by the flag.
std::vector<FlagPath> ImageFilesOf(const char* flag, const std::string& folder);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_OUTPUT_PATHS_H_
