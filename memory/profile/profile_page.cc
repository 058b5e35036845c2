#include "tidepool/memory/profile/profile_page.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/profile/detail_levels.h"

namespace tidepool {
namespace {

std::string HtmlText(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// The template's "{{name}}" in turn; what is put in is not looked at.
std::string FillIn(absl::string_view page,
                   const std::vector<std::pair<absl::string_view, absl::string_view>>& parts) {
  std::string filled;
  size_t bytes = page.size();
  for (const auto& part : parts) bytes += part.second.size();
  filled.reserve(bytes);
  for (;;) {
    const size_t begin = page.find("{{");
    if (begin == absl::string_view::npos) break;
    const size_t end = page.find("}}", begin);
    if (end == absl::string_view::npos)
      ThrowInternal("memory profile: the page's template has an open {{");
    const absl::string_view name = page.substr(begin + 2, end - begin - 2);
    filled.append(page.data(), begin);
    for (const auto& [part, text] : parts) {
      if (part == name) filled.append(text.data(), text.size());
    }
    page.remove_prefix(end + 2);
  }
  filled.append(page.data(), page.size());
  return filled;
}

std::string PageOf(const ProfileData& data) {
  internal::EncodedProfile encoded = internal::EncodeProfile(data);
  // Within a script element no "</script" or "<!--" may stand.
  const std::string header = absl::StrReplaceAll(encoded.header, {{"<", "\\u003c"}});
  const std::string columns = absl::Base64Escape(encoded.columns);
  const std::string title = HtmlText(data.title);
  return FillIn(internal::kPageHtml, {{"title", title},
                                      {"style", internal::kPageStyle},
                                      {"dygraphs_style", internal::kDygraphsStyle},
                                      {"dygraphs_licence", internal::kDygraphsLicence},
                                      {"dygraphs", internal::kDygraphsScript},
                                      {"script", internal::kPageScript},
                                      {"header", header},
                                      {"columns", columns}});
}

}  // namespace

std::string ProfilePage(const ProfileData& data, size_t most_bytes) {
  constexpr size_t kLeast = 500'000;  // the scripts and a little
  if (most_bytes < kLeast) ThrowInvalidArgument("ProfilePage: most_bytes is below 500000");
  DetailLimits limits;
  for (;;) {
    std::string page = PageOf(Reduced(data, limits));
    if (page.size() <= most_bytes) return page;
    if (limits.arrays < 2) ThrowInternal("ProfilePage: a page without arrays is too large");
    limits.arrays /= 2;
    limits.requests /= 2;
    limits.steps /= 2;
    limits.cycles /= 2;
    limits.owners /= 2;
    limits.string_bytes /= 2;
  }
}

void WriteProfilePage(const ProfileData& data, const std::string& path) {
  AtomicFile file(path);
  file.Append(ProfilePage(data));
  file.Commit();
}

}  // namespace tidepool
