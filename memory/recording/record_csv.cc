// The events of a record as read_record.py prints them.
#include <cinttypes>
#include <cstdio>
#include <exception>

#include "tidepool/memory/recording/record.h"

int main(int argc, char** argv) {
  using namespace tidepool;
  if (argc != 2) return 2;
  try {
    const Record record = ReadRecord(argv[1]);
    std::printf("number,nanoseconds,thread,what,block,bytes,alignment,kind,owner,device\n");
    constexpr const char* kWhat[] = {"allocate", "free", "cycle_begin", "cycle_end"};
    for (const auto* events : {&record.live, &record.events}) {
      for (const RecordEvent& e : *events) {
        std::printf("%" PRIu64 ",%" PRId64 ",%u,%s,%" PRIu64 ",%" PRIu64 ",%d,%s,%s,%s\n", e.number,
                    e.nanoseconds, e.thread, kWhat[static_cast<int>(e.what)], e.block, e.bytes,
                    e.alignment_log2, MemoryKindName(e.kind), record.names[e.owner].c_str(),
                    record.names[e.device].c_str());
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
