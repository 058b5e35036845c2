#include "tidepool/ndarray/io/npy_format.h"

#include <bit>
#include <cctype>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

static_assert(std::endian::native == std::endian::little, "written as '<'");

constexpr absl::string_view kMagic("\x93NUMPY", 6);

struct NamedType {
  const char* code;
  DType dtype;
};
constexpr NamedType kTypes[] = {
    {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"f2", DType::kFloat16},
    {"i1", DType::kInt8},    {"i4", DType::kInt32},   {"i8", DType::kInt64},
    {"u1", DType::kUInt8},   {"b1", DType::kBool},    {"i2", DType::kInt16},
    {"u2", DType::kUInt16},  {"u4", DType::kUInt32},  {"u8", DType::kUInt64},
};

// Text of a file in a message.
std::string Shown(const std::string& text) { return OneLine(text.substr(0, 80)); }

// Reads the Python literals that headers are made of.
class DictReader {
 public:
  DictReader(absl::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool Take(char c) {
    if (!NextIs(c)) return false;
    ++at_;
    return true;
  }
  bool NextIs(char c) {
    SkipSpaces();
    return at_ < text_.size() && text_[at_] == c;
  }
  absl::string_view rest() const { return text_.substr(at_); }
  void Expect(char c) {
    if (!Take(c)) Fail(absl::StrCat("'", absl::string_view(&c, 1), "'"));
  }
  std::string String() {
    SkipSpaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') Fail("a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == absl::string_view::npos) Fail("the end of a string");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool Bool() {
    SkipSpaces();
    for (const bool value : {false, true}) {
      const absl::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    Fail("True or False");
  }
  std::vector<int64_t> Sizes() {
    std::vector<int64_t> sizes;
    Expect('(');
    while (!Take(')')) {
      if (!sizes.empty() && sizes.size() < 2 && Take(')')) break;
      sizes.push_back(Number());
      if (Take(')')) {
        if (sizes.size() == 1) Fail("a comma: a tuple of one");
        break;
      }
      Expect(',');
    }
    return sizes;
  }
  void End() {
    SkipSpaces();
    if (at_ != text_.size()) Fail("the end of the header");
  }
  [[noreturn]] void Fail(const std::string& expected) const {
    ThrowDataLoss(absl::StrCat(
        name_, ": header: character ", at_, ": found ",
        at_ < text_.size() ? absl::StrCat("\"", OneLine(std::string(text_.substr(at_, 12))), "\"")
                           : std::string("its end"),
        ", expected ", expected));
  }

 private:
  int64_t Number() {
    SkipSpaces();
    int64_t value = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      if (value > (INT64_MAX - 9) / 10) Fail("a size below 2^63");
      value = value * 10 + (text_[at_] - '0');
    }
    if (at_ == begin) Fail("a size");
    return value;
  }
  void SkipSpaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  absl::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

[[noreturn]] void ThrowType(const std::string& descr, const std::string& name) {
  std::vector<std::string> known;
  for (const NamedType& type : kTypes) known.push_back(type.code);
  ThrowUnimplemented(absl::StrCat(name, ": descr: found \"", Shown(descr), "\", expected one of ",
                                  absl::StrJoin(known, ", "), " with a byte order"));
}

void SetType(const std::string& descr, const std::string& name, NpyHeader* header) {
  for (const NamedType& type : kTypes) {
    if (descr.size() != 3 || descr.substr(1) != type.code) continue;
    const bool one_byte = DTypeBytes(type.dtype) == 1;
    if (descr[0] != '<' && descr[0] != '>' && descr[0] != '=' && !(descr[0] == '|' && one_byte)) {
      continue;
    }
    header->dtype = type.dtype;
    header->swapped = descr[0] == '>' && !one_byte;
    return;
  }
  ThrowType(descr, name);
}

}  // namespace

NpyHeaderRange FindNpyHeader(absl::string_view prefix, const std::string& name) {
  if (prefix.substr(0, kMagic.size()) != kMagic) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: found \"",
                               OneLine(std::string(prefix.substr(0, kMagic.size()))),
                               "\", expected \"\\x93NUMPY\""));
  }
  if (prefix.size() < kNpyPrefixBytes) {
    ThrowDataLoss(
        absl::StrCat(name, ": found a file of ", prefix.size(), " bytes, expected a header"));
  }
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(prefix[i])); };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    ThrowDataLoss(absl::StrCat(name, ": byte 6: found version ", byte(6), ".", byte(7),
                               ", expected 1.0, 2.0 or 3.0"));
  }
  const size_t begin = byte(6) == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (byte(6) > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kNpyMostHeaderBytes) {
    ThrowDataLoss(absl::StrCat(name, ": byte 8: found a header of ", length,
                               " bytes, expected at most ", kNpyMostHeaderBytes));
  }
  return {begin, begin + length};
}

NpyHeader ParseNpyHeader(absl::string_view text, const std::string& name) {
  DictReader reader(text, name);
  NpyHeader header;
  bool has_type = false, has_order = false, has_shape = false;
  std::string descr;
  std::vector<int64_t> sizes;
  reader.Expect('{');
  while (!reader.Take('}')) {
    const std::string key = reader.String();
    reader.Expect(':');
    if (key == "descr" && !has_type) {
      // Of records with names that is a list, which nothing here can be read of.
      if (reader.NextIs('[')) ThrowType(std::string(reader.rest()), name);
      descr = reader.String();
      has_type = true;
    } else if (key == "fortran_order" && !has_order) {
      header.fortran_order = reader.Bool();
      has_order = true;
    } else if (key == "shape" && !has_shape) {
      sizes = reader.Sizes();
      has_shape = true;
    } else {
      reader.Fail(absl::StrCat("descr, fortran_order and shape once each, not ", Shown(key)));
    }
    if (!reader.Take(',')) {
      reader.Expect('}');
      break;
    }
  }
  reader.End();
  if (!has_type || !has_order || !has_shape) {
    ThrowDataLoss(absl::StrCat(name, ": header: found no ",
                               !has_type    ? "descr"
                               : !has_order ? "fortran_order"
                                            : "shape"));
  }
  SetType(descr, name, &header);
  if (sizes.size() > kMaxRank) {
    ThrowInvalidArgument(
        absl::StrCat(name, ": shape: found rank ", sizes.size(), ", expected at most ", kMaxRank));
  }
  try {
    header.shape = Shape(absl::Span<const int64_t>(sizes));
  } catch (const Error& error) {
    ThrowInvalidArgument(absl::StrCat(name, ": shape: ", error.message()));
  }
  return header;
}

std::string SerializeNpyHeader(DType dtype, const Shape& shape) {
  const char* code = nullptr;
  for (const NamedType& type : kTypes) {
    if (type.dtype == dtype) code = type.code;
  }
  if (code == nullptr) {
    ThrowInvalidArgument(absl::StrCat("npy: found ", DTypeName(dtype),
                                      ", which the format has no name for; Cast() to f32 first"));
  }
  std::string text =
      absl::StrCat("{'descr': '", DTypeBytes(dtype) == 1 ? "|" : "<", code,
                   "', 'fortran_order': False, 'shape': (", absl::StrJoin(shape.span(), ", "),
                   shape.rank() == 1 ? ",), }" : "), }");
  const size_t unpadded = 10 + text.size() + 1;
  text.append((unpadded + 63) / 64 * 64 - unpadded, ' ');
  text += '\n';
  std::string out(kMagic.data(), kMagic.size());
  out += '\x01';
  out += '\0';
  out += static_cast<char>(text.size() & 0xff);
  out += static_cast<char>(text.size() >> 8);
  return out + text;
}

}  // namespace tidepool
