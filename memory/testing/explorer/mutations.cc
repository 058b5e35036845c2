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

std::string Name(const std::vector<Site>& sites, const Site& site, const Mutation& mutation) {
  std::string name = ToText(site.where);
  if (NeedsColumn(sites, site)) absl::StrAppend(&name, ":", site.where.column());
  absl::StrAppend(&name, " ", site.operation);
  if (site.kind == SiteKind::kFailure) name += " failing";
  if (site.kind != SiteKind::kNotify) absl::StrAppend(&name, " ", ToText(site.order));
  return absl::StrCat(name,
                      mutation.drop ? " left out" : absl::StrCat(" -> ", ToText(mutation.order)));
}

}  // namespace

std::string MutationTable::undetected() const {
  std::string text;
  for (const Row& row : rows) {
    if (row.detected()) continue;
    absl::StrAppend(&text, row.mutation, row.result.exhausted ? "" : " (not exhausted)", "\n");
  }
  return text;
}

std::string MutationTable::report() const {
  if (!original.passed()) return original.report();
  size_t width = 0;
  size_t noticed = 0;
  for (const Row& row : rows) {
    width = std::max(width, row.mutation.size());
    noticed += row.detected();
  }
  std::string text =
      absl::StrCat("mutations", original.name.empty() ? "" : " of ", original.name, ": ", noticed,
                   " of ", rows.size(), " detected; the code as it is passes ", original.executions,
                   " executions", original.exhausted ? ", exhausted" : ", not exhausted", "\n");
  for (const Row& row : rows) {
    absl::StrAppend(&text, "  ", row.mutation, std::string(width - row.mutation.size(), ' '), "  ",
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
      MutationTable::Row row;
      row.mutation = Name(original_sites, original_sites[i], mutation);
      row.result = internal::SearchAll(options, body, &sites);
      row.result.replay.clear();
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace tidepool::explorer
