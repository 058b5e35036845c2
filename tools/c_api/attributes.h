// A JSON object of named values, read member by member: attributes of operators, members of a workspace's configuration, options.
//
//   Attributes attributes("operator [softmax]", "{\"axis\": 1}");
//   const int axis = attributes.Axis("axis", -1);
//   attributes.CheckAllRead();           // "operator [softmax]: no attribute [axes]; there are [axis]"
//
// Throws kInvalidArgument that says where, which attribute, what was found and what is expected.
#ifndef TIDEPOOL_TOOLS_C_API_ATTRIBUTES_H_
#define TIDEPOOL_TOOLS_C_API_ATTRIBUTES_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool::c_api {

// Text of the caller's for a message: what is no UTF-8 or not to be printed is escaped as in JSON, and long text is cut.
std::string Shown(absl::string_view text);

class Attributes {
 public:
  // Null or "": an object without members. A name that is there twice is an error, as are numbers that no float64 has.
  Attributes(std::string where, const char* json);
  // Reads nothing: each member that is asked for is written to `description`, in an array, with its type and default; values
  // are the defaults, or zeros, nothing and the first choice.
  explicit Attributes(JsonWriter* description);
  ~Attributes();
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;

  // Without a default: it must be there.
  bool Flag(const char* name, bool otherwise);
  int64_t Int(const char* name, std::optional<int64_t> otherwise = std::nullopt);
  int Axis(const char* name, std::optional<int> otherwise = std::nullopt);
  uint64_t Unsigned(const char* name, std::optional<uint64_t> otherwise = std::nullopt);
  // Of memory: at most INT64_MAX.
  size_t Size(const char* name, size_t otherwise);
  // "inf", "-inf" and "nan" are numbers, too.
  double Number(const char* name, std::optional<double> otherwise = std::nullopt);
  std::string Text(const char* name, std::optional<std::string> otherwise = std::nullopt);
  DType Type(const char* name, std::optional<DType> otherwise = std::nullopt);
  // A number is a list of one. Absent: empty where it may be.
  enum class Absent : uint8_t { kIsEmpty, kIsError };
  std::vector<int64_t> Ints(const char* name, Absent absent);
  // For each of `count` axes: absent is `otherwise`, a number is for all.
  std::vector<int64_t> IntsPerAxis(const char* name, size_t count, int64_t otherwise);
  std::vector<int> Axes(const char* name);
  std::vector<double> Numbers(const char* name);
  tidepool::Shape Shape(const char* name);
  // One of the names, which become their places in the list.
  int Choice(const char* name, absl::Span<const char* const> names, int otherwise);
  template <typename Enum>
  Enum Choice(const char* name, std::initializer_list<const char*> names, Enum otherwise) {
    return static_cast<Enum>(Choice(name, absl::MakeConstSpan(names.begin(), names.size()),
                                    static_cast<int>(otherwise)));
  }
  bool Has(const char* name) const;

  // Throws for a member that was not asked for.
  void CheckAllRead() const;

 private:
  struct Members;
  [[noreturn]] void ThrowNot(const char* name, const std::string& expected) const;
  // Null where it is absent, which throws unless it `may_be`.
  const void* Find(const char* name, bool may_be_absent);
  bool Describes(const char* name, const char* type, const std::optional<std::string>& otherwise);

  std::string where_;
  std::unique_ptr<Members> members_;
  JsonWriter* description_ = nullptr;
  std::vector<const char*> asked_;
};

}  // namespace tidepool::c_api

#endif  // TIDEPOOL_TOOLS_C_API_ATTRIBUTES_H_
