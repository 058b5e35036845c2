// The flag --workspace_mode, of commands and of programs that train.
#ifndef TIDEPOOL_TOOLS_COMMANDS_WORKSPACE_MODE_H_
#define TIDEPOOL_TOOLS_COMMANDS_WORKSPACE_MODE_H_

#include <string>

#include "tidepool/memory/workspace/policies.h"

namespace tidepool::tools {

// "enabled", "single", "separate" or "none"; throws kInvalidArgument naming the four otherwise.
WorkspaceMode ParseWorkspaceMode(const std::string& name);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_WORKSPACE_MODE_H_
