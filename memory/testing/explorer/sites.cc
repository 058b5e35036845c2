#include "tidepool/memory/testing/explorer/sites.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tidepool::explorer {

std::string ToText(const Where& where) {
  const std::string file = where.file_name();
  if (file.empty()) return "?";
  const size_t slash = file.rfind('/');
  return absl::StrCat(slash == file.npos ? file : file.substr(slash + 1), ":", where.line());
}

absl::string_view ToText(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
      return "consume";
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    case std::memory_order_seq_cst:
      return "seq_cst";
  }
  return "unknown";
}

namespace internal {
namespace {

bool Same(const Site& a, SiteKind kind, std::memory_order order, const Where& where) {
  return a.where.line() == where.line() && a.where.column() == where.column() && a.kind == kind &&
         a.order == order &&
         (a.where.file_name() == where.file_name() ||
          std::strcmp(a.where.file_name(), where.file_name()) == 0);
}

}  // namespace

int Sites::Find(SiteKind kind, const char* operation, std::memory_order order, const Where& where) {
  int& found = found_[(where.line() * 31 + where.column() * 7 + static_cast<unsigned>(kind)) %
                      found_.size()];
  if (found < static_cast<int>(sites_.size()) && Same(sites_[found], kind, order, where))
    return found;
  for (found = 0; found < static_cast<int>(sites_.size()); ++found) {
    if (Same(sites_[found], kind, order, where)) return found;
  }
  sites_.push_back({kind, operation, order, where});
  return found;
}

std::vector<Mutation> Sites::MutationsOf(const Site& site, int number) {
  std::vector<Mutation> mutations;
  auto weaken = [&](std::memory_order order) { mutations.push_back({number, false, order}); };
  const bool reads = site.kind == SiteKind::kLoad || site.kind == SiteKind::kFailure;
  switch (site.order) {
    case std::memory_order_seq_cst:
      if (site.kind == SiteKind::kNotify) break;
      if (reads) {
        weaken(std::memory_order_acquire);
      } else if (site.kind == SiteKind::kStore) {
        weaken(std::memory_order_release);
      } else {
        weaken(std::memory_order_acq_rel);
      }
      break;
    case std::memory_order_acq_rel:
      weaken(std::memory_order_acquire);
      weaken(std::memory_order_release);
      break;
    case std::memory_order_acquire:
    case std::memory_order_consume:
    case std::memory_order_release:
      // A relaxed fence is none, which is what leaving it out does.
      if (site.kind != SiteKind::kFence) weaken(std::memory_order_relaxed);
      break;
    case std::memory_order_relaxed:
      break;
  }
  if (site.kind == SiteKind::kFence || site.kind == SiteKind::kNotify ||
      site.kind == SiteKind::kLock) {
    mutations.push_back({number, true, std::memory_order_relaxed});
  }
  return mutations;
}

}  // namespace internal
}  // namespace tidepool::explorer
