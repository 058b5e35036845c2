// A recording as one HTML page: all it needs is in it, and it loads nothing. Its policy (Content-Security-Policy)
// forbids everything but its own scripts and styles.
//
// The page's data are a JSON object of names and counts, and columns of whole numbers as varints (LEB128; signed ones
// zigzag), in base64: profile_columns.cc has their order. Drawn by memory/profile/page and dygraphs.
#ifndef TIDEPOOL_MEMORY_PROFILE_PROFILE_PAGE_H_
#define TIDEPOOL_MEMORY_PROFILE_PROFILE_PAGE_H_

#include <cstddef>
#include <string>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

inline constexpr size_t kMostPageBytes = 5'000'000;

// What does not fit is merged (detail_levels.h) until the page has at most `most_bytes`, at least 500,000.
std::string ProfilePage(const ProfileData& data, size_t most_bytes = kMostPageBytes);

// The whole file or, on an error (AtomicFile's), nothing.
void WriteProfilePage(const ProfileData& data, const std::string& path);

namespace internal {

struct EncodedProfile {
  std::string header;   // JSON
  std::string columns;  // binary
};
EncodedProfile EncodeProfile(const ProfileData& data);

// Of memory/profile/page, put into C++ at build time.
extern const char kPageHtml[], kPageStyle[], kPageScript[];
extern const char kDygraphsScript[], kDygraphsStyle[], kDygraphsLicence[];

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_PROFILE_PAGE_H_
