// A file that has no name: gone with its last descriptor, however the process ends.
#ifndef TIDEPOOL_MEMORY_IO_NAMELESS_FILE_H_
#define TIDEPOOL_MEMORY_IO_NAMELESS_FILE_H_

#include <string>

namespace tidepool {

// Its descriptor, for reading and writing (0600, closed by exec), which the caller closes; `flags` beside, as of open(2). Below 0:
// refused, errno says why.
int OpenNamelessFile(const std::string& folder, int flags = 0);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_NAMELESS_FILE_H_
