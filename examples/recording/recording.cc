#include <cstdio>
#include <filesystem>
#include <string>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/recording/advice.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/record_requests.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"
using namespace tidepool;

int main() {
  const std::string path = (std::filesystem::temp_directory_path() / "steps.rec").string();
  StartRecording(path);
  {
    Workspace workspace("step");
    for (int step = 0; step < 100; ++step) {
      WorkspaceScope scope(workspace);
      BufferHandle x(AllocateHere(1 << 20)), y(AllocateHere(1 << 20));
      x.Reset();
      BufferHandle z(AllocateHere(4 << 20));
    }
  }
  StopRecording();

  const Record record = ReadRecord(path);
  std::printf("%zu events\n", record.events.size());
  std::fputs(Advise(record).ToString().c_str(), stdout);
  std::filesystem::remove(path);
}
