// A program that knows nothing of recording: cycles on two threads, arrays that one makes and another
// releases. With an argument it ends by quick_exit().
#include <cstddef>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

using namespace tidepool;

int main(int argc, char**) {
  std::vector<BufferHandle> kept;
  for (int i = 0; i < 10; ++i) kept.emplace_back(NewHeapBuffer(1000 + i));
  std::thread other([&] {
    Workspace workspace("other");
    for (int step = 0; step < 20; ++step) {
      WorkspaceScope scope(workspace);
      BufferHandle a(AllocateHere(256 * (step % 3 + 1)));
      BufferHandle b(AllocateHere(5000));
    }
    kept.clear();
  });
  Workspace workspace("step");
  for (int step = 0; step < 50; ++step) {
    WorkspaceScope scope(workspace);
    MemoryTagScope tag("layer");
    std::vector<BufferHandle> arrays;
    for (int i = 0; i < 10; ++i) arrays.emplace_back(AllocateHere(64 << i));
  }
  other.join();
  if (argc > 1) std::quick_exit(0);
  return 0;
}
