// view: a page or a trace of a recording that another program made.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/chrome_trace.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/pytorch_snapshot.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/flags.h"
#include "tidepool/tools/commands/output_paths.h"

ABSL_FLAG(std::string, snapshot, "", "pickle of torch.cuda.memory._dump_snapshot()");
ABSL_FLAG(std::string, page, "", "HTML: where to write a page that shows it; empty: nowhere");
ABSL_FLAG(std::string, trace, "", "JSON: where to write it for ui.perfetto.dev; empty: nowhere");

namespace tidepool::tools {

int RunView() {
  const std::string snapshot = Required("snapshot", absl::GetFlag(FLAGS_snapshot));
  const std::string page = absl::GetFlag(FLAGS_page), trace = absl::GetFlag(FLAGS_trace);
  if (page.empty() && trace.empty())
    ThrowInvalidArgument("flags --page and --trace are empty, expected one of them");
  CheckOutputPaths({{"page", page}, {"trace", trace}}, {{"snapshot", snapshot}});
  const ProfileData data = ReadPyTorchSnapshot(snapshot);
  for (const std::string& note : data.notes) std::printf("%s\n", note.c_str());
  if (!page.empty()) {
    WriteProfilePage(data, page);
    std::printf("wrote %s\n", page.c_str());
  }
  if (!trace.empty()) {
    WriteChromeTrace(data, trace);
    std::printf("wrote %s\n", trace.c_str());
  }
  return kExitOk;
}

}  // namespace tidepool::tools
