#include "tidepool/examples/digit_server/request_head.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tidepool {
namespace {

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsToken(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", static_cast<char>(c));
  });
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

// Of RFC 3986's characters; empty where the target has none.
bool IsHost(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-._~%!$&'()*+,;=:[]", static_cast<char>(c));
  });
}

// Three words with a space between them; their meaning is the library's.
bool IsRequestLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  return words.size() == 3 && IsToken(words[0]) && !words[1].empty() && !words[2].empty() &&
         std::all_of(line.begin(), line.end(),
                     [](unsigned char c) { return c == ' ' || absl::ascii_isgraph(c); });
}

}  // namespace

HeadRefusal HeadLines::Add(absl::string_view line) {
  is_hidden_ = false;
  if (!absl::EndsWith(line, "\r\n")) return {400, "expected lines that end with CR LF"};
  line.remove_suffix(2);
  if (std::exchange(is_first_, false)) return AddRequestLine(line);
  if (!line.empty()) return AddField(line);
  is_whole_ = true;
  const std::string flaw = Flaw();
  return flaw.empty() ? HeadRefusal() : HeadRefusal{400, flaw};
}

HeadRefusal HeadLines::AddRequestLine(absl::string_view line) {
  is_old_ = absl::EndsWith(line, " HTTP/1.0");
  if (line.size() > kMostLineBytes) {
    return {414, absl::StrCat("the request line has more than ", kMostLineBytes, " bytes")};
  }
  if (!IsRequestLine(line)) {
    return {400, "the request line: expected a method, a target, a version"};
  }
  if (std::count(line.begin(), line.end(), '&') >= kMostParameters) {
    return {414, absl::StrCat("the target has more than ", kMostParameters, " parameters")};
  }
  return {};
}

std::string HeadLines::Flaw() const {
  if (has_length_ && has_coding_) return "found Content-Length and Transfer-Encoding";
  if (has_coding_ && is_old_) return "HTTP/1.0: found Transfer-Encoding";
  return has_host_ || is_old_ ? "" : "expected a Host";
}

HeadRefusal HeadLines::AddField(absl::string_view line) {
  if (++fields_ > kMostFields) {
    return {431, absl::StrCat("the head of the request has more than ", kMostFields, " fields")};
  }
  if (line.size() > kMostLineBytes) {
    return {431, absl::StrCat("a header of the request has more than ", kMostLineBytes, " bytes")};
  }
  const auto bad = [](auto... words) { return HeadRefusal{400, absl::StrCat(words...)}; };
  const size_t colon = line.find(':');
  const absl::string_view name = line.substr(0, colon);
  if (colon == line.npos || !IsToken(name)) {
    return bad("a header: expected a name, a colon directly behind it and a value, in one line");
  }
  absl::string_view value = line.substr(colon + 1);
  if (std::any_of(value.begin(), value.end(),
                  [](unsigned char c) { return c != '\t' && absl::ascii_iscntrl(c); })) {
    return bad(name, ": found a control character");
  }
  value = absl::StripAsciiWhitespace(value);
  if (absl::EqualsIgnoreCase(name, "Content-Length")) {
    if (std::exchange(has_length_, true)) return bad("found Content-Length twice");
    if (!IsNumber(value)) return bad("Content-Length: expected digits alone");
  } else if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) {
    if (std::exchange(has_coding_, true)) return bad("found Transfer-Encoding twice");
    if (!absl::EqualsIgnoreCase(value, "chunked"))
      return bad("Transfer-Encoding: expected chunked");
  } else if (absl::EqualsIgnoreCase(name, "Host")) {
    if (std::exchange(has_host_, true)) return bad("found Host twice");
    if (!IsHost(value)) return bad("Host: expected a name or an address, and perhaps a port");
  }
  is_hidden_ = absl::EqualsIgnoreCase(name, "Range") || absl::EqualsIgnoreCase(name, "If-Range");
  return {};
}

HeadRefusal CheckRequestHead(const httplib::Request& request,
                             const std::map<std::string, bool>& takes_body, int64_t body_bytes) {
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
