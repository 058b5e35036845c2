// A small JSON parser on std::pmr: what a program without arrays looks like.
//
// A document is a tree of the standard library's containers, all of them in the memory resource
// that the parser is given. Numbers are doubles; of a name that stands twice in an object the first
// value is kept.
#ifndef TIDEPOOL_EXAMPLES_CONTAINERS_JSON_H_
#define TIDEPOOL_EXAMPLES_CONTAINERS_JSON_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace json {

struct Value;
using String = std::pmr::string;
using Array = std::pmr::vector<Value>;
using Object = std::pmr::map<String, Value, std::less<>>;

struct Value {
  std::variant<std::nullptr_t, bool, double, String, Array, Object> value;

  // Of an object; throws std::out_of_range when there is no such name.
  const Value& operator[](std::string_view name) const {
    const Object& object = std::get<Object>(value);
    const auto found = object.find(name);
    if (found == object.end()) throw std::out_of_range("no member \"" + std::string(name) + "\"");
    return found->second;
  }
  const Array& array() const { return std::get<Array>(value); }
  double number() const { return std::get<double>(value); }
  const String& string() const { return std::get<String>(value); }
};

// What is wrong and at which byte.
class ParseError : public std::runtime_error {
 public:
  ParseError(const std::string& expected, size_t at, std::string_view found)
      : std::runtime_error("JSON: expected " + expected + " at byte " + std::to_string(at) +
                           ", found " +
                           (found.empty() ? "the end" : "'" + std::string(found) + "'")) {}
};

// The document in `text`, in memory of `resource`. Throws ParseError, and what the resource throws.
Value Parse(std::string_view text, std::pmr::memory_resource* resource);

}  // namespace json

#endif  // TIDEPOOL_EXAMPLES_CONTAINERS_JSON_H_
