// The commands that read records of requests: replay, advise, memory. Nothing of networks is linked with
// them.
#ifndef TIDEPOOL_TOOLS_COMMANDS_RECORDING_COMMANDS_H_
#define TIDEPOOL_TOOLS_COMMANDS_RECORDING_COMMANDS_H_

#include <vector>

#include "tidepool/tools/commands/command_line.h"

namespace tidepool::tools {

// `commands` and these.
std::vector<Command> WithRecordingCommands(std::vector<Command> commands);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_RECORDING_COMMANDS_H_
