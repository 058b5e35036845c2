#include "tidepool/ndarray/testing/own_operator.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

struct Own {
  CaseMaker make;
  Tolerance tolerance;
};

std::map<OpCode, Own>& Table() {
  static auto* const table = new std::map<OpCode, Own>;
  return *table;
}

}  // namespace

bool AddOpCases(OpCode op, CaseMaker make, Tolerance tolerance) {
  if (static_cast<int>(op) < kOpCodes || !Table().try_emplace(op, Own{make, tolerance}).second) {
    ThrowInvalidArgument(
        absl::StrCat("cases of operator ", Info(op).name, ": it has some already"));
  }
  return true;
}

CaseMaker FindOwnCases(OpCode op) {
  const auto found = Table().find(op);
  return found != Table().end() ? found->second.make : nullptr;
}

Tolerance ToleranceOfOwn(OpCode op) {
  const auto found = Table().find(op);
  if (found == Table().end()) {
    ThrowInvalidArgument(absl::StrCat("operator ", Info(op).name,
                                      ": found no cases, expected AddOpCases() to be called"));
  }
  return found->second.tolerance;
}

}  // namespace tidepool
