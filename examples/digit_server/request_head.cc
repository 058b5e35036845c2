#include "tidepool/examples/digit_server/request_head.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Lengths that could be read in two ways, and codings but chunks.
HeadRefusal CheckLength(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  const size_t codings = request.get_header_value_count("Transfer-Encoding");
  const bool is_number = lengths == 0 || IsNumber(request.get_header_value("Content-Length"));
  if (lengths + codings > 1 || !is_number) {
    return {400, "Content-Length, Transfer-Encoding: expected one of them, a number or chunked"};
  }
  const std::string coding = request.get_header_value("Transfer-Encoding");
  if (codings > 0 && !absl::EqualsIgnoreCase(coding, "chunked")) {
    return {501, "Transfer-Encoding: expected chunked"};
  }
  return {};
}

HeadRefusal CheckBody(const httplib::Request& request, int64_t body_bytes) {
  const bool has_length = request.has_header("Content-Length");
  if (!has_length && !request.has_header("Transfer-Encoding")) {
    return {411, "expected a Content-Length"};
  }
  int64_t claimed;
  if (has_length && (!absl::SimpleAtoi(request.get_header_value("Content-Length"), &claimed) ||
                     claimed > body_bytes)) {
    return {413, absl::StrCat("the body is larger than the limit of ", body_bytes, " bytes")};
  }
  const std::string encoding = request.get_header_value("Content-Encoding");
  if (request.get_header_value_count("Content-Encoding") > 1 ||
      (!encoding.empty() && !absl::EqualsIgnoreCase(encoding, "identity"))) {
    return {415, "Content-Encoding: expected none: compressed bodies are not unpacked",
            "Accept-Encoding", "identity"};
  }
  if (absl::StartsWithIgnoreCase(request.get_header_value("Content-Type"), "multipart/")) {
    return {415, "Content-Type: expected the bytes of the body alone, not multipart"};
  }
  return {};
}

}  // namespace

HeadRefusal CheckRequestHead(const httplib::Request& request,
                             const std::map<std::string, bool>& takes_body, int64_t body_bytes) {
  if (HeadRefusal refusal = CheckLength(request); refusal.status != 0) return refusal;
  const auto page = takes_body.find(request.path);
  if (page == takes_body.end()) {
    std::string pages;
    for (const auto& [path, takes] : takes_body) {
      absl::StrAppend(&pages, pages.empty() ? "" : ", ", path);
    }
    return {404, absl::StrCat("no such page; see ", pages)};
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (page->second ? request.method != "POST" : !reads) {
    return {405, absl::StrCat(page->first, ": expected ", page->second ? "POST" : "GET"), "Allow",
            page->second ? "POST" : "GET, HEAD"};
  }
  if (page->second) return CheckBody(request, body_bytes);
  const std::string length = request.get_header_value("Content-Length");
  if (request.has_header("Transfer-Encoding") || length.find_first_not_of('0') != length.npos) {
    return {400, absl::StrCat(page->first, ": found a body, expected none")};
  }
  return {};
}

}  // namespace tidepool
