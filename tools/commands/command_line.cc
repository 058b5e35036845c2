#include "tidepool/tools/commands/command_line.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <new>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tidepool/memory/error.h"

namespace tidepool::tools {
namespace {

void PrintOverview(const std::vector<Command>& commands, std::FILE* out) {
  std::fprintf(out, "usage: tidepool COMMAND [--flag=value ...]\n\n");
  for (const Command& command : commands) {
    std::fprintf(out, "  %-10s %s\n", command.name, command.summary);
  }
  std::fprintf(out, "\ntidepool COMMAND --help explains one.\n");
}

void PrintHelp(const Command& command) {
  std::printf("tidepool %s%s%s: %s\n\n", command.name, command.arguments[0] != '\0' ? " " : "",
              command.arguments, command.summary);
  for (const char* name : command.flags) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::printf("  --%-16s %s (default: \"%s\")\n", name, flag->Help().c_str(),
                flag->DefaultValue().c_str());
  }
  if (!command.special_flags.empty()) {
    constexpr size_t kColumns = 100;
    std::string line = absl::StrCat("  ", command.special, ":");
    for (const char* name : command.special_flags) {
      const std::string flag = absl::StrCat(" --", name);
      if (line.size() + flag.size() > kColumns) {
        std::printf("%s\n", line.c_str());
        line = "   ";
      }
      line += flag;
    }
    std::printf("%s\n", line.c_str());
  }
  if (command.help[0] != '\0') std::printf("\n%s\n", command.help);
}

// One line, whatever a flag or a file put into the message.
void PrintError(const std::string& program, const char* message) {
  std::string line;
  for (const char* c = message; *c != '\0'; ++c) {
    if (static_cast<unsigned char>(*c) < 0x20 || *c == 0x7f) {
      absl::StrAppend(&line, "\\x", absl::Hex(static_cast<unsigned char>(*c), absl::kZeroPad2));
    } else {
      line += *c;
    }
  }
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", program.c_str(), line.c_str());
}

// What a flag of this type takes; for others the parser's own words.
std::string ExpectedOf(const absl::CommandLineFlag& flag, const std::string& parser_error) {
  if (flag.IsOfType<bool>()) return "expected true or false";
  if (flag.IsOfType<int>()) {
    return absl::StrCat("expected a whole number from ", std::numeric_limits<int>::min(), " to ",
                        std::numeric_limits<int>::max());
  }
  if (flag.IsOfType<int64_t>()) {
    return absl::StrCat("expected a whole number from ", std::numeric_limits<int64_t>::min(),
                        " to ", std::numeric_limits<int64_t>::max());
  }
  if (flag.IsOfType<uint64_t>()) {
    return absl::StrCat("expected a whole number from 0 to ", std::numeric_limits<uint64_t>::max());
  }
  if (flag.IsOfType<double>()) return "expected a number";
  if (flag.IsOfType<absl::Duration>()) return "expected a time with its unit, such as 10s or 500ms";
  return parser_error;
}

std::vector<std::string>& Arguments() {
  static auto* const arguments = new std::vector<std::string>;
  return *arguments;
}

[[noreturn]] void BadFlag(const Command& command, const std::string& what) {
  ThrowInvalidArgument(absl::StrCat(what, "; tidepool ", command.name, " --help lists the flags"));
}

// --name=value, --name value, --name and --noname of booleans.
void ParseFlags(const Command& command, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const char* argument = argv[i];
    if (std::strncmp(argument, "--", 2) != 0) {
      if (Arguments().size() < command.most_arguments) {
        Arguments().emplace_back(argument);
        continue;
      }
      BadFlag(command, absl::StrCat("argument \"", argument, "\", expected a flag"));
    }
    std::string name(argument + 2);
    std::string value;
    bool has_value = false;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
      has_value = true;
    }
    auto takes = [&](const std::string& flag) {
      const auto is_it = [&](const char* known) { return flag == known; };
      return std::any_of(command.flags.begin(), command.flags.end(), is_it) ||
             std::any_of(command.special_flags.begin(), command.special_flags.end(), is_it);
    };
    bool negated = false;
    if (!takes(name) && name.rfind("no", 0) == 0 && takes(name.substr(2)) && !has_value &&
        absl::FindCommandLineFlag(name.substr(2))->IsOfType<bool>()) {
      name = name.substr(2);
      negated = true;
    }
    if (!takes(name)) BadFlag(command, absl::StrCat("unknown flag --", name));
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (negated || (flag->IsOfType<bool>() && !has_value)) {
      value = negated ? "false" : "true";
    } else if (!has_value) {
      // A flag in the place of a value is a forgotten value; --name=--value says it is meant.
      if (i + 1 >= argc || std::strncmp(argv[i + 1], "--", 2) == 0) {
        BadFlag(command, absl::StrCat("flag --", name, " has no value"));
      }
      value = argv[++i];
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      BadFlag(command,
              absl::StrCat("flag --", name, " is \"", value, "\", ", ExpectedOf(*flag, error)));
    }
  }
  if (Arguments().size() < command.least_arguments) {
    ThrowInvalidArgument(absl::StrCat("found ", Arguments().size(), " arguments, expected ",
                                      command.arguments, "; tidepool ", command.name,
                                      " --help says what they are"));
  }
}

// What is printed is work as well: a disk that is full behind standard output, or a reader that has
// gone.
void FinishOutput() {
  if (std::fflush(stdout) == 0) {
    if (std::ferror(stdout) == 0) return;
    // An earlier write failed, and why is forgotten; it may fail again.
    errno = EIO;
    if (std::fputc('\n', stdout) != EOF) std::fflush(stdout);
  }
  ThrowErrno(errno, "write standard output");
}

int Run(const std::vector<Command>& commands, int argc, char** argv, const char** name) {
  auto find = [&](const char* wanted) {
    return std::find_if(commands.begin(), commands.end(), [&](const Command& command) {
      return std::strcmp(command.name, wanted) == 0;
    });
  };
  const bool asks =
      argc >= 2 && (std::strcmp(argv[1], "help") == 0 || std::strcmp(argv[1], "--help") == 0 ||
                    std::strcmp(argv[1], "-h") == 0);
  if (argc < 2 || (asks && argc < 3)) {
    PrintOverview(commands, asks ? stdout : stderr);
    return asks ? kExitOk : kExitBadInput;
  }
  const auto command = find(argv[asks ? 2 : 1]);
  if (command == commands.end()) {
    std::string names;
    for (const Command& known : commands) absl::StrAppend(&names, " ", known.name);
    ThrowInvalidArgument(
        absl::StrCat("unknown command \"", argv[asks ? 2 : 1], "\"; commands:", names));
  }
  *name = command->name;
  Arguments().clear();
  for (int i = 2; i < argc; ++i) {
    if (asks || std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      PrintHelp(*command);
      return kExitOk;
    }
  }
  ParseFlags(*command, argc, argv);
  return command->run();
}

// `run` with what is said of RunCommand; `program` is asked for when something is wrong.
int RunGuarded(absl::FunctionRef<std::string()> program, absl::FunctionRef<int()> run) {
  // A limit on file sizes is then an error of write(), which cleans up, instead of the end; and who
  // looks at the first lines only (head) does not end a training.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const int status = run();
    FinishOutput();
    return status;
  } catch (const CommandFailed& failure) {
    PrintError(program(), failure.what());
    return kExitFailed;
  } catch (const std::bad_alloc&) {
    PrintError(program(), "out of memory");
  } catch (const std::exception& error) {
    PrintError(program(), error.what());
  }
  return kExitBadInput;
}

}  // namespace

const std::vector<std::string>& CommandArguments() { return Arguments(); }

int RunCommand(const std::vector<Command>& commands, int argc, char** argv) {
  const char* name = "";
  return RunGuarded([&] { return absl::StrCat("tidepool", name[0] != '\0' ? " " : "", name); },
                    [&] { return Run(commands, argc, argv, &name); });
}

int RunProgram(const char* name, const std::vector<char*>& arguments,
               absl::FunctionRef<int()> run) {
  return RunGuarded(
      [&] { return std::string(name); },
      [&] {
        if (arguments.size() > 1) {
          ThrowInvalidArgument(absl::StrCat("argument \"", arguments[1], "\", expected a flag"));
        }
        return run();
      });
}

}  // namespace tidepool::tools
