// First names as sequences of letters, with what their bearers are called.
#ifndef TIDEPOOL_EXAMPLES_NAMES_NAMES_DATA_H_
#define TIDEPOOL_EXAMPLES_NAMES_NAMES_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::examples {

inline constexpr int64_t kLength = 15;   // of the longest name
inline constexpr int64_t kLetters = 28;  // none, a to z, hyphen

struct Names {
  std::vector<int64_t> letters;  // [names, kLength], 0 behind a name's end
  std::vector<int64_t> labels;   // 0: f, 1: m
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

// Lines of a name, a tab and f or m. Throws as FileReader for what cannot be opened or is no regular
// file, and kDataLoss naming path, line and column.
Names ReadNames(const std::string& path);

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_NAMES_NAMES_DATA_H_
