#include "tidepool/memory/io/standard_streams.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(StandardStreams, WhatIsOpenedNextIsNoneOfThem) {
  for (const int closed : {0b001, 0b010, 0b100, 0b101, 0b111}) {
    const pid_t child = fork();
    if (child == 0) {
      for (int stream = 0; stream < 3; ++stream) {
        if ((closed >> stream & 1) != 0) close(stream);
      }
      OpenClosedStandardStreams();
      if (open("/dev/null", O_RDWR) < 3) _exit(1);
      char byte = 0;
      if ((closed & 0b001) != 0 && read(STDIN_FILENO, &byte, 1) != 0) _exit(2);
      if ((closed & 0b010) != 0 && (write(STDOUT_FILENO, "o", 1) != -1 || errno != EBADF)) _exit(3);
      if ((closed & 0b100) != 0 && write(STDERR_FILENO, "e", 1) != 1) _exit(4);
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << closed;
  }
}

}  // namespace
}  // namespace tidepool
