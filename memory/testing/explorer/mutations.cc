#include "tidepool/memory/testing/explorer/mutations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/testing/explorer/search.h"
#include "tidepool/memory/testing/explorer/sites.h"

namespace tidepool::explorer {
namespace {

using internal::Mutation;
using internal::Site;
using internal::Sites;

// Whether the line of a site has another one that reads the same.
bool NeedsColumn(const std::vector<Site>& sites, const Site& site) {
  return std::count_if(sites.begin(), sites.end(), [&](const Site& other) {
           return other.kind == site.kind && other.order == site.order &&
                  other.where.line() == site.where.line() &&
                  ToText(other.where) == ToText(site.where);
         }) > 1;
}

MutationTable::Row RowOf(const std::vector<Site>& sites, const Site& site,
                         const Mutation& mutation) {
  MutationTable::Row row;
  row.where = ToText(site.where);
  if (NeedsColumn(sites, site)) absl::StrAppend(&row.where, ":", site.where.column());
  row.operation = absl::StrCat(site.operation, site.kind == SiteKind::kFailure ? " failing" : "");
  if (site.kind == SiteKind::kLock) {
    row.to = absl::StrCat(site.operation, "_shared");
    return row;
  }
  if (site.kind != SiteKind::kNotify) row.from = std::string(ToText(site.order));
  if (!mutation.drop) row.to = std::string(ToText(mutation.order));
  return row;
}

}  // namespace

std::string MutationTable::Row::text() const {
  return absl::StrCat(where, " ", operation, from.empty() ? "" : absl::StrCat(" ", from),
                      to.empty() ? " left out" : absl::StrCat(" -> ", to));
}

std::string MutationTable::undetected() const {
  std::string text;
  for (const Row& row : rows) {
    if (row.detected()) continue;
    absl::StrAppend(&text, row.text(), row.result.exhausted ? "" : " (not exhausted)", "\n");
  }
  return text;
}

std::string MutationTable::report() const {
  if (!original.passed()) return original.report();
  size_t width = 0;
  size_t noticed = 0;
  for (const Row& row : rows) {
    width = std::max(width, row.text().size());
    noticed += row.detected();
  }
  std::string text =
      absl::StrCat("mutations", original.name.empty() ? "" : " of ", original.name, ": ", noticed,
                   " of ", rows.size(), " detected; the code as it is passes ", original.executions,
                   " executions", original.exhausted ? ", exhausted" : ", not exhausted", "\n");
  for (const Row& row : rows) {
    absl::StrAppend(&text, "  ", row.text(), std::string(width - row.text().size(), ' '), "  ",
                    row.detected()         ? ToText(row.result.failure)
                    : row.result.exhausted ? "NOT DETECTED"
                                           : "NOT DETECTED, not exhausted",
                    " after ", row.result.executions, "\n");
  }
  return text;
}

MutationTable ExploreMutations(const Options& options, absl::FunctionRef<void(Execution&)> body) {
  MutationTable table;
  Sites sites;
  table.original = internal::SearchAll(options, body, &sites);
  if (!table.original.passed()) return table;
  // What is come across only in a mutated run is not mutated in turn.
  const std::vector<Site> original_sites = sites.sites();
  for (size_t i = 0; i < original_sites.size(); ++i) {
    for (const Mutation& mutation : Sites::MutationsOf(original_sites[i], static_cast<int>(i))) {
      sites.set_mutation(mutation);
      MutationTable::Row row = RowOf(original_sites, original_sites[i], mutation);
      row.result = internal::SearchAll(options, body, &sites);
      row.result.replay.clear();
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace tidepool::explorer
