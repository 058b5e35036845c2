// Operators as the C API knows them: by name, with attributes as JSON.
#ifndef TIDEPOOL_TOOLS_C_API_OPERATOR_TABLE_H_
#define TIDEPOOL_TOOLS_C_API_OPERATOR_TABLE_H_

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/tools/c_api/attributes.h"

namespace tidepool::c_api {

// In the operator's order; null where an optional one is absent.
using Inputs = absl::Span<const NDArray* const>;
using Results = absl::InlinedVector<NDArray, 4>;

// An operator whose attributes are read.
struct Prepared {
  std::function<Results(Inputs)> run;  // empty: it writes to what there is and gives nothing
  std::function<void(Inputs, absl::Span<NDArray>)> run_into;  // empty: run, and copies
};

struct NamedOperator {
  std::string name;
  std::string inputs;   // "X,Y,bias?"; "parts..." at the end for any number
  std::string outputs;  // "Z"; "parts..." for as many as there come
  std::function<Prepared(Attributes&)> prepare;
};

// Sorted by name. Made once.
const std::vector<NamedOperator>& NamedOperators();
// Null: none.
const NamedOperator* FindNamedOperator(std::string_view name);

// Of `list`, comma-separated: how many there must be at least and may be at most.
struct OperandCount {
  size_t least = 0, most = 0;
  std::vector<std::string> names;
};
OperandCount CountOperandsOf(const std::string& list);

// ---- for the tables ----

void AddElementwiseOperators(std::vector<NamedOperator>& table);
void AddArrayOperators(std::vector<NamedOperator>& table);
void AddOrderOperators(std::vector<NamedOperator>& table);
void AddNetworkOperators(std::vector<NamedOperator>& table);

// Of one result.
template <typename Run>
Prepared One(Run run) {
  return {[run = std::move(run)](Inputs in) {
            Results results;
            results.push_back(run(in));
            return results;
          },
          nullptr};
}
// And a form of its own that writes to an array that is there: into(in, z).
template <typename Run, typename Into>
Prepared One(Run run, Into into) {
  Prepared prepared = One(std::move(run));
  prepared.run_into = [into = std::move(into)](Inputs in, absl::Span<NDArray> out) {
    into(in, out[0]);
  };
  return prepared;
}
// Of several: run(in) gives a Results.
template <typename Run>
Prepared Many(Run run) {
  return {std::move(run), nullptr};
}
// Of what is there: into(in, out).
template <typename Into>
Prepared InPlace(Into into) {
  return {nullptr, std::move(into)};
}

inline Results ResultsOf(std::vector<NDArray> arrays) {
  return Results(std::make_move_iterator(arrays.begin()), std::make_move_iterator(arrays.end()));
}

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_OPERATOR_TABLE_H_
