#include "tidepool/tools/commands/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
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
  std::printf("tidepool %s: %s\n\n", command.name, command.summary);
  for (const char* name : command.flags) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::printf("  --%-16s %s (default: \"%s\")\n", name, flag->Help().c_str(),
                flag->DefaultValue().c_str());
  }
  if (command.help[0] != '\0') std::printf("\n%s\n", command.help);
}

[[noreturn]] void BadFlag(const Command& command, const std::string& what) {
  ThrowInvalidArgument(
      absl::StrCat(what, "; tidepool ", command.name, " --help lists the flags"));
}

// --name=value, --name value, --name and --noname of booleans.
void ParseFlags(const Command& command, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const char* argument = argv[i];
    if (std::strncmp(argument, "--", 2) != 0) {
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
      return std::any_of(command.flags.begin(), command.flags.end(),
                         [&](const char* known) { return flag == known; });
    };
    bool negated = false;
    if (!takes(name) && name.rfind("no", 0) == 0 && takes(name.substr(2)) && !has_value) {
      name = name.substr(2);
      negated = true;
    }
    if (!takes(name)) BadFlag(command, absl::StrCat("unknown flag --", name));
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    if (negated || (flag->IsOfType<bool>() && !has_value)) {
      value = negated ? "false" : "true";
    } else if (!has_value) {
      if (i + 1 >= argc) BadFlag(command, absl::StrCat("flag --", name, " has no value"));
      value = argv[++i];
    }
    std::string error;
    if (!flag->ParseFrom(value, &error)) {
      BadFlag(command, absl::StrCat("flag --", name, " is \"", value, "\": ", error));
    }
  }
}

}  // namespace

int RunCommand(const std::vector<Command>& commands, int argc, char** argv) {
  auto find = [&](const char* name) {
    return std::find_if(commands.begin(), commands.end(), [&](const Command& command) {
      return std::strcmp(command.name, name) == 0;
    });
  };
  const bool asks = argc >= 2 && (std::strcmp(argv[1], "help") == 0 ||
                                  std::strcmp(argv[1], "--help") == 0);
  if (argc < 2 || (asks && argc < 3)) {
    PrintOverview(commands, asks ? stdout : stderr);
    return asks ? kExitOk : kExitBadInput;
  }
  const auto command = find(argv[asks ? 2 : 1]);
  if (command == commands.end()) {
    std::string names;
    for (const Command& known : commands) absl::StrAppend(&names, " ", known.name);
    std::fprintf(stderr, "tidepool: unknown command \"%s\"; commands:%s\n", argv[asks ? 2 : 1],
                 names.c_str());
    return kExitBadInput;
  }
  for (int i = 2; i < argc; ++i) {
    if (asks || std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
      PrintHelp(*command);
      return kExitOk;
    }
  }
  try {
    ParseFlags(*command, argc, argv);
    return command->run();
  } catch (const Error& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "tidepool %s: %s\n", command->name, error.what());
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    std::fprintf(stderr, "tidepool %s: out of memory\n", command->name);
  }
  return kExitBadInput;
}

}  // namespace tidepool::tools
