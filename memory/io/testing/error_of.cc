#include "tidepool/memory/io/testing/error_of.h"

#include <ostream>
#include <utility>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

class IsErrorMatcher {
 public:
  using is_gtest_matcher = void;

  IsErrorMatcher(absl::StatusCode code, std::vector<std::string> parts)
      : code_(code), parts_(std::move(parts)) {}

  bool MatchAndExplain(const Error& error, std::ostream* out) const {
    bool matches = true;
    const auto complain = [&](const std::string& text) {
      matches = false;
      if (out != nullptr) *out << "\n  " << text;
    };
    if (error.code() != code_) complain("code is " + absl::StatusCodeToString(error.code()));
    for (const std::string& part : parts_) {
      if (error.message().find(part) == std::string::npos) complain("lacks \"" + part + "\"");
    }
    if (const std::string flaw = MessageFlaw(error); !flaw.empty()) complain(flaw);
    if (!matches && out != nullptr) *out << "\n  message: " << error.message();
    return matches;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is an Error of code " << absl::StatusCodeToString(code_) << " with";
    for (const std::string& part : parts_) *out << " \"" << part << "\"";
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "not: ";
    DescribeTo(out);
  }

 private:
  absl::StatusCode code_;
  std::vector<std::string> parts_;
};

}  // namespace

Error ErrorOf(absl::FunctionRef<void()> function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

std::string MessageFlaw(const Error& error) {
  if (error.message().empty()) return "the message is empty";
  if (error.message().size() > 2000) return "the message is longer than 2000 bytes";
  for (const char c : error.message()) {
    if (static_cast<unsigned char>(c) < 0x20) return "the message has a control character";
  }
  return "";
}

::testing::Matcher<const Error&> IsError(absl::StatusCode code, std::vector<std::string> parts) {
  return IsErrorMatcher(code, std::move(parts));
}

}  // namespace tidepool
