// Explore, with sites that may be mutated.
#ifndef TIDEPOOL_MEMORY_TESTING_EXPLORER_SEARCH_H_
#define TIDEPOOL_MEMORY_TESTING_EXPLORER_SEARCH_H_

#include "absl/functional/function_ref.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/sites.h"

namespace tidepool::explorer::internal {

// `sites` may be null. A replay of the environment is not looked for.
Result SearchAll(const Options& options, absl::FunctionRef<void(Execution&)> body, Sites* sites);

}  // namespace tidepool::explorer::internal

#endif  // TIDEPOOL_MEMORY_TESTING_EXPLORER_SEARCH_H_
