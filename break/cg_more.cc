#include <cstdlib>
#include <cstring>
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
using namespace tidepool;
static volatile const void* sink;
int main(int argc, char** argv) {
  const int n = std::atoi(argv[2]);
  if (!std::strcmp(argv[1], "attach")) {
    Ownership root = Ownership::NewRoot("benchmark");
    Ownership node = root.NewChild("node");
    BufferHandle x(NewHeapBuffer(64));
    const uint64_t ref = node.ref().bits();
    for (int i = 0; i < n; ++i) { sink = (const void*)(uintptr_t)(0+ (LinkNew(x.get(), ref), 1)); internal::BeforeRelease(x.get()); }
  } else if (!std::strcmp(argv[1], "reshape")) {
    const NDArray x = Ones({8, 8}); const Shape shape{64};
    for (int i = 0; i < n; ++i) sink = x.Reshape(shape).raw_data();
  } else if (!std::strcmp(argv[1], "ring")) {
    RingWorkspace ring("ring", WorkspaceConfig::Ring(4));
    const int requests = std::atoi(argv[3]);
    for (int i = 0; i < n; ++i) { RingSlotScope slot(ring); for (int k = 0; k < requests; ++k) { BufferHandle a(AllocateHere(4096)); sink = a->data; } SlotLease lease = slot.Commit(); }
  }
}
