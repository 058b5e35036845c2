#include "tidepool/tools/commands/workspace_mode.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool::tools {

WorkspaceMode ParseWorkspaceMode(const std::string& name) {
  if (name == "enabled") return WorkspaceMode::kEnabled;
  if (name == "single") return WorkspaceMode::kSingle;
  if (name == "separate") return WorkspaceMode::kSeparate;
  if (name == "none") return WorkspaceMode::kNone;
  ThrowInvalidArgument(absl::StrCat("flag --workspace_mode is \"", name,
                                    "\", expected enabled, single, separate or none"));
}

}  // namespace tidepool::tools
