// The commands that read records, as a program.
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/recording_commands.h"

int main(int argc, char** argv) {
  return tidepool::tools::RunCommand(tidepool::tools::WithRecordingCommands({}), argc, argv);
}
