#include "tidepool/tools/c_api/operator_table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace tidepool::c_api {

const std::vector<NamedOperator>& NamedOperators() {
  static const auto* const operators = [] {
    auto* const table = new std::vector<NamedOperator>();
    AddElementwiseOperators(*table);
    AddArrayOperators(*table);
    AddOrderOperators(*table);
    AddNetworkOperators(*table);
    std::sort(table->begin(), table->end(),
              [](const NamedOperator& a, const NamedOperator& b) { return a.name < b.name; });
    return table;
  }();
  return *operators;
}

const NamedOperator* FindNamedOperator(std::string_view name) {
  const std::vector<NamedOperator>& table = NamedOperators();
  const auto found =
      std::lower_bound(table.begin(), table.end(), name,
                       [](const NamedOperator& a, std::string_view b) { return a.name < b; });
  return found != table.end() && found->name == name ? &*found : nullptr;
}

OperandCount CountOperandsOf(const std::string& list) {
  OperandCount count;
  if (list.empty()) return count;
  for (absl::string_view name : absl::StrSplit(list, ',')) {
    name = name.substr(0, name.find(':'));  // types: the functions check them
    count.names.emplace_back(name);
    ++count.most;
    if (name.back() != '?') count.least = count.most;
    if (absl::EndsWith(name, "...")) count.most = SIZE_MAX;
  }
  return count;
}

}  // namespace tidepool::c_api
