// Subcommands with Abseil flags: which flags a command takes, its help, its errors.
#ifndef TIDEPOOL_TOOLS_COMMANDS_COMMAND_LINE_H_
#define TIDEPOOL_TOOLS_COMMANDS_COMMAND_LINE_H_

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tidepool::tools {

// Exit statuses of every command.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;    // the work was done and its answer is no
inline constexpr int kExitBadInput = 2;  // bad flags or files, or a mode that is not built

// The work was done and its answer is no: RunCommand prints why, like an error, and returns
// kExitFailed.
class CommandFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Command {
  const char* name;
  const char* summary;             // one line
  const char* help;                // below the flags; fits on a screen with them
  std::vector<const char*> flags;  // names of Abseil flags it takes
  int (*run)();
  // Flags that it takes with one of those alone, which help names in a line: what they are, a guide
  // says.
  const char* special = "";  // "With --distributed (docs/distributed.md)"
  std::vector<const char*> special_flags = {};
  // What it takes beside flags: "FILE [FILE2]", of which so many must be there and may be.
  const char* arguments = "";
  size_t least_arguments = 0, most_arguments = 0;
};

// Those of the command that runs.
const std::vector<std::string>& CommandArguments();

// Runs the command named by argv[1]. Prints help for none, -h, --help or "help [COMMAND]". Flags
// are --name=value, --name value, and --name or --noname of booleans; a value that starts with "--"
// needs the first form. Errors are one line on stderr and kExitBadInput, kExitFailed for
// CommandFailed. Standard output that could not be written (a full disk, a reader that has gone) is
// such an error, of help too. Ignores SIGXFSZ and SIGPIPE from then on.
int RunCommand(const std::vector<Command>& commands, int argc, char** argv);

// The same of a program without commands, whose Abseil flags have been parsed and left `arguments`,
// the program's name first: more is an error. `name` begins the line of an error.
int RunProgram(const char* name, const std::vector<char*>& arguments, absl::FunctionRef<int()> run);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_COMMAND_LINE_H_
