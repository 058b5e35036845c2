#include "tidepool/tools/c_api/error_terms.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tidepool::c_api {
namespace {

struct Term {
  absl::string_view cpp, c;
};

// What callers in C have instead; nothing where they have nothing.
constexpr Term kTerms[] = {
    {"; DLPackDeviceRegistrar adds one", ""},
    {"; MemoryTracing::Enable() says where they were made", ""},
    {"; use BorrowScope to allocate from an outer workspace", ""},
    {", or a call of Run()", ""},
    {" as of NewStates()", ""},
    {" (LoadModel's max_example_elements)", ""},
    {" (LoadModel's max_example_operations, --max_operations of programs)", ""},
    {"; kMax is or, kMin and", "; \"max\" is or, \"min\" and"},
    {", or a kind that RegisterLayer() has made known", ""},
    {"std::bad_alloc: the C++ heap is exhausted", "the heap is exhausted"},
    {"something that is no std::exception", "something unknown"},
    {"Dup()", "tidepool_array_copy"},
    {"Detach()", "tidepool_array_detach"},
    {"Destroy()", "tidepool_workspace_reset"},
    {"ToDLPackVersioned", "tidepool_array_to_dlpack_versioned"},
    {"MatMulInto", "tidepool_operator_run_into"},
    {"enter one with ManagerScope, or give an explicit destination",
     "enter one with tidepool_manager_enter, or give another manager"},
    {"kUnlimited", "INT64_MAX"},
    {"Cast() to", "cast to"},
    {"Cast them", "cast them"},
    {"LogicalAnd", "logical_and"},
    {"LogicalOr", "logical_or"},
    {"LogicalXor", "logical_xor"},
    {"LogicalNot", "logical_not"},
    {"and Any", "and any"},
    {" (BroadcastTo)", " (broadcast_to)"},
};

// Operators that are functions here, whose operand has no name.
constexpr absl::string_view kOwnOperators[] = {"attach",    "detach",  "temp_attach", "ret",
                                               "to_dlpack", "migrate", "copy"};

bool IsOfWord(char c) { return absl::ascii_isalnum(c) || c == '_'; }

// Behind the text that begins at `at` with a quote or a bracket.
size_t EndOfOwnText(absl::string_view message, size_t at) {
  const bool is_quoted = message[at] == '"';
  int depth = 0;
  for (size_t i = at; i < message.size(); ++i) {
    if (is_quoted) {
      if (message[i] == '\\')
        ++i;
      else if (message[i] == '"' && i > at)
        return i + 1;
    } else {
      if (message[i] == '[') ++depth;
      if (message[i] == ']' && --depth == 0) return i + 1;
    }
  }
  return message.size();
}

const Term* TermAt(absl::string_view message, size_t at) {
  for (const Term& term : kTerms) {
    if (!absl::StartsWith(message.substr(at), term.cpp)) continue;
    const size_t end = at + term.cpp.size();
    const bool begins = !IsOfWord(term.cpp.front()) || at == 0 || !IsOfWord(message[at - 1]);
    const bool ends =
        !IsOfWord(term.cpp.back()) || end == message.size() || !IsOfWord(message[end]);
    if (begins && ends) return &term;
  }
  return nullptr;
}

// Without what the message begins with where that is the name of a function of C++: "SetBudget: ", "NewSubManager [a]: ".
absl::string_view WithoutFunctionOfCpp(absl::string_view message) {
  size_t end = 0;
  while (end < message.size() && absl::ascii_isalpha(message[end])) ++end;
  if (end == 0 || !absl::ascii_isupper(message[0]) || message.substr(0, end) == "Op")
    return message;
  const absl::string_view rest = message.substr(end);
  if (absl::StartsWith(rest, ": ")) return rest.substr(2);
  return absl::StartsWith(rest, " [") ? rest.substr(1) : message;
}

// "the array" for "Op [attach] X argument" and "Op [<function>] array argument".
std::string WithoutOwnOperator(absl::string_view function, absl::string_view message) {
  absl::string_view rest = message;
  if (!absl::ConsumePrefix(&rest, "Op [")) return std::string(message);
  const size_t end = rest.find(']');
  if (end == absl::string_view::npos) return std::string(message);
  const absl::string_view name = rest.substr(0, end);
  bool is_own = name == function;
  for (const absl::string_view own : kOwnOperators) is_own = is_own || name == own;
  if (!is_own) return std::string(message);
  rest.remove_prefix(end + 1);
  for (const absl::string_view operand : {" X argument", " array argument", " X"}) {
    if (absl::ConsumePrefix(&rest, operand)) return absl::StrCat("the array", rest);
  }
  absl::ConsumePrefix(&rest, ": ");
  return std::string(rest);
}

}  // namespace

std::string InTermsOfC(absl::string_view function, absl::string_view message) {
  const std::string own = WithoutOwnOperator(function, WithoutFunctionOfCpp(message));
  const absl::string_view text = own;
  std::string out;
  if (!absl::StartsWith(text, absl::StrCat(function, ":"))) out = absl::StrCat(function, ": ");
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '[') {
      const size_t end = EndOfOwnText(text, at);
      absl::StrAppend(&out, text.substr(at, end - at));
      at = end;
    } else if (const Term* const term = TermAt(text, at); term != nullptr) {
      absl::StrAppend(&out, term->c);
      at += term->cpp.size();
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

}  // namespace tidepool::c_api
