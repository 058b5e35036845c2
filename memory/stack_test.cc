#include "tidepool/memory/stack.h"

#include <limits.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

void* TouchOnThread(void* touched) {
  *static_cast<size_t*>(touched) = TouchStack();
  return nullptr;
}

size_t TouchedOn(size_t stack_bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0) << stack_bytes;
  size_t touched = SIZE_MAX;
  pthread_t thread;
  EXPECT_EQ(pthread_create(&thread, &attributes, &TouchOnThread, &touched), 0) << stack_bytes;
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return touched;
}

TEST(Stack, SmallStacksAreTouchedAsFarAsTheyGo) {
  const size_t least = sysconf(_SC_THREAD_STACK_MIN) + (size_t{64} << 10);  // sanitizers need more
  for (const size_t kib : {128, 192, 256, 257, 288, 320}) {
    const size_t bytes = kib << 10;
    if (bytes < least) continue;
    const size_t touched = TouchedOn(bytes);
    EXPECT_LE(touched, bytes - (size_t{32} << 10)) << kib;
    if (kib < 256) {
      EXPECT_GE(touched, bytes / 2) << kib;
    }
  }
  EXPECT_EQ(TouchedOn(size_t{1} << 20), size_t{256} << 10);
}

TEST(Stack, TheMainThreadsLimitIsKept) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = rlim_t{160} << 10;
    if (setrlimit(RLIMIT_STACK, &limit) != 0) _exit(2);
    _exit(TouchStack() < (size_t{160} << 10) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tidepool
