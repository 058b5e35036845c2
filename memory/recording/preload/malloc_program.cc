// What record_malloc_test looks for in a record: sizes that nobody else asks for, in every way there
// is. Arguments: how it ends (exit, _exit, kill, vfork) and after how many rounds.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tidepool/memory/recording/record_marks.h"

namespace {

void* volatile kept;

void Check(bool holds) {
  if (!holds) abort();
}

void EveryWay() {
  free(malloc(100001));
  char* const zeros = static_cast<char*>(calloc(3, 33337));  // 100011
  Check(zeros != nullptr && zeros[100010] == 0);
  char* grown = static_cast<char*>(realloc(zeros, 200003));
  grown = static_cast<char*>(realloc(grown, 300007));
  free(grown);
  void* const from_null = realloc(nullptr, 100019);
  Check(realloc(from_null, 0) == nullptr);
  void* aligned = aligned_alloc(256, 102400 + 256);
  Check(reinterpret_cast<size_t>(aligned) % 256 == 0);
  free(aligned);
  Check(posix_memalign(&aligned, 4096, 100043) == 0);
  free(aligned);
  free(memalign(128, 100049));
  delete[] new char[100057];
  free(nullptr);
  kept = malloc(100069);  // never released
}

void Cycles(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    tidepool_mark_cycle_begin("round");
    void* const a = malloc(110017);
    tidepool_mark_cycle_begin("inner");
    void* const b = malloc(110023);
    free(b);
    tidepool_mark_cycle_end("inner");
    free(a);
    tidepool_mark_cycle_end("round");
  }
}

// Each thread's blocks are released by the next one.
void Threads() {
  constexpr int kThreads = 4, kBlocks = 500;
  std::vector<void*> blocks[kThreads];
  const auto all = [&](auto&& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
  };
  all([&](int t) {
    for (int i = 0; i < kBlocks; ++i) blocks[t].push_back(malloc(120011 + 2 * t));
  });
  all([&](int t) {
    for (void* const block : blocks[(t + 1) % kThreads]) free(block);
  });
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc == 3);
  const char* const end = argv[1];
  const int rounds = atoi(argv[2]);
  EveryWay();
  Cycles(rounds);
  Threads();
  const pid_t child = fork();
  if (child == 0) {
    free(kept);
    free(malloc(130003));
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  Check(status == 0);
  if (strcmp(end, "vfork") == 0) {
    const pid_t other = vfork();
    if (other == 0) _exit(0);
    waitpid(other, &status, 0);
  }
  free(malloc(130021));  // after all of that
  if (strcmp(end, "_exit") == 0) _exit(0);
  if (strcmp(end, "kill") == 0) kill(getpid(), SIGKILL);
  return 0;
}
