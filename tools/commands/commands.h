// The commands of the tidepool binary; each reads its flags and returns an exit status.
#ifndef TIDEPOOL_TOOLS_COMMANDS_COMMANDS_H_
#define TIDEPOOL_TOOLS_COMMANDS_COMMANDS_H_

namespace tidepool::tools {

int RunTrain();
int RunEvaluate();
int RunPredict();
int RunKernels();
int RunPlanCommand();
int RunMemoryReport();

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_COMMANDS_H_
