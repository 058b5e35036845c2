#include "tidepool/memory/io/nameless_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

namespace tidepool {

int OpenNamelessFile(const std::string& folder, int flags) {
  const int nameless = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (nameless >= 0) return nameless;
  // File systems without O_TMPFILE: a name that is gone before anything is written.
  std::string name = folder + "/tidepool-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);
  if (named < 0) return named;
  unlink(name.c_str());
  return named;
}

}  // namespace tidepool
