// Programs that do to their record what programs do, by the first argument:
//   closes, closes_range, replaces: their descriptors, the record's among them; then a file of their own is made
//   exits: by _exit() in a signal's handler, which comes while the record is written
//   cancels: a thread that does nothing but ask for memory
//   limits: how large files may be
//   quick: ends by quick_exit()
//   unnamed: marks cycles without a name
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tidepool/memory/recording/record_marks.h"

namespace {

volatile bool interrupts = false;
int ended;  // what the thread that is cancelled returns the address of

void Check(bool holds) {
  if (!holds) abort();
}

// Some 400 KB of a record: its blocks are full several times.
void AskALot() {
  for (int i = 0; i < 40000; ++i) free(malloc(110017));
}

void* AskingThread(void*) {
  AskALot();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  return &ended;
}

void WithFileOfItsOwn(const char* path, void (*lets_go)(int own)) {
  const int before = open(path, O_CREAT | O_RDWR, 0600);
  Check(before == 3);  // as without a record
  lets_go(before);
  AskALot();
  const int own = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
  AskALot();
  Check(own >= 0 && write(own, "mine", 4) == 4);
  Check(lseek(own, 0, SEEK_END) == 4);
}

void CloseAll(int) {
  for (int i = 3; i < 1024; ++i) close(i);
}

void CloseRange(int) { syscall(SYS_close_range, 3, ~0u, 0); }

// All but the last few numbers of those that select() can have.
void ReplaceAll(int own) {
  for (int i = 3; i < 1020; ++i) {
    if (i != own) dup2(own, i);
  }
}

void Exit(int) { _exit(7); }

}  // namespace

// What the library calls as well: a place where threads are cancelled, as the C library's is, and where a
// signal comes at the worst moment.
extern "C" __attribute__((visibility("default"))) ssize_t write(int descriptor, const void* data,
                                                                size_t bytes) {
  if (interrupts) {
    interrupts = false;
    raise(SIGUSR1);
  }
  pthread_testcancel();
  return syscall(SYS_write, descriptor, data, bytes);
}

int main(int argc, char** argv) {
  Check(argc == 3);
  const char* const what = argv[1];
  const auto is = [&](const char* name) { return strcmp(what, name) == 0; };
  if (is("closes")) WithFileOfItsOwn(argv[2], &CloseAll);
  if (is("closes_range")) WithFileOfItsOwn(argv[2], &CloseRange);
  if (is("replaces")) WithFileOfItsOwn(argv[2], &ReplaceAll);
  if (is("exits")) {
    signal(SIGUSR1, &Exit);
    interrupts = true;
    AskALot();
    return 1;
  }
  if (is("cancels")) {
    pthread_t thread;
    void* result = nullptr;
    Check(pthread_create(&thread, nullptr, &AskingThread, nullptr) == 0);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    Check(result == &ended);
    AskALot();
  }
  if (is("limits")) {
    const rlimit limit = {100000, RLIM_INFINITY};
    Check(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    AskALot();
  }
  if (is("quick")) {
    free(malloc(130021));
    quick_exit(0);
  }
  if (is("unnamed")) {
    tidepool_mark_cycle_begin(nullptr);
    free(malloc(130021));
    tidepool_mark_cycle_end(nullptr);
  }
  return 0;
}
