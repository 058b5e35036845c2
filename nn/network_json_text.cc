#include "tidepool/nn/network_json_text.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool::nn {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostShown = 80;
constexpr size_t kMostWithin = 64;

// Of an input's text what a message can hold: short, without control characters.
std::string Plain(const std::string& text) {
  constexpr size_t kMost = 300;
  std::string plain;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      plain += "?";
    } else {
      plain += c;
    }
  }
  return text.size() > kMost ? plain + "..." : plain;
}

// What the parser says, without the name of its exception. It quotes by apostrophes, which need no escapes.
std::string WordsOf(const Json::exception& error) {
  std::string words = error.what();
  const size_t name_end = words.find("] ");
  if (words.rfind("[json.", 0) == 0 && name_end != words.npos) words.erase(0, name_end + 2);
  return absl::StrReplaceAll(OneLine(words.substr(0, 300)),
                             {{R"(\\)", R"(\\)"}, {R"(\')", "'"}, {R"(\")", "\""}});
}

// A tree goes by a list of what is in it, whose memory it asks for when it may not fail: what has nothing in it needs none.
void TakeApart(Json& value) noexcept {
  if (value.is_array()) {
    auto& elements = value.get_ref<Json::array_t&>();
    for (Json& element : elements) TakeApart(element);
    elements.clear();
  } else if (value.is_object()) {
    auto& fields = value.get_ref<Json::object_t&>();
    for (auto& [name, field] : fields) TakeApart(field);
    fields.clear();
  }
}

// Makes the tree of what the parser finds, which is looked at before it goes in.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit TreeBuilder(Json& root) : root_(root) {}
  bool null() override { return Put(Json()); }
  bool boolean(bool value) override { return Put(Json(value)); }
  bool number_integer(number_integer_t value) override { return Put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Put(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Put(Json(value)); }
  bool string(string_t& text) override {
    CheckNoZero(text, Path());
    return Put(Json(std::move(text)));
  }
  bool binary(binary_t&) override { return false; }  // there is none in a text
  bool start_object(std::size_t) override { return Begin(Json::object()); }
  bool end_object() override { return End(); }
  bool start_array(std::size_t) override { return Begin(Json::array()); }
  bool end_array() override { return End(); }
  bool key(string_t& name) override {
    levels_.back().key.clear();
    CheckNoZero(name, Path());
    if (levels_.back().value->contains(name)) {
      ThrowInvalidArgument(
          absl::StrCat(At(Path()), "field ", ShownJson(name), " is there twice in one object"));
    }
    levels_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // Of numbers that no double holds the parser tells no line.
    constexpr int kNumberOverflow = 406;
    ThrowInvalidArgument(
        absl::StrCat(At(error.id == kNumberOverflow ? Path() : ""), WordsOf(error)));
  }

 private:
  struct Level {
    Json* value;      // an array or an object
    std::string key;  // of an object: of the field under way; empty: none is
  };

  static std::string At(const std::string& path) {
    return absl::StrCat("network JSON: ", Plain(path), path.empty() ? "" : ": ");
  }
  static void CheckNoZero(const std::string& text, const std::string& path) {
    if (text.find('\0') == text.npos) return;
    ThrowInvalidArgument(
        absl::StrCat(At(path), "text ", ShownJson(text), " has a zero byte, expected none"));
  }
  // Of what is under way: "layers[2].filters".
  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.value->is_array()) {
        // An array or object is added before what is in it.
        const size_t begun = &level == &levels_.back() ? 0 : 1;
        absl::StrAppend(&path, "[", level.value->size() - begun, "]");
      } else if (!level.key.empty()) {
        absl::StrAppend(&path, path.empty() ? "" : ".", level.key);
      }
    }
    return path;
  }
  Json* Add(Json&& value) {
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (!level.value->is_array()) {
      return &level.value->get_ref<Json::object_t&>()
                  .emplace(level.key, std::move(value))
                  .first->second;
    }
    auto& elements = level.value->get_ref<Json::array_t&>();
    elements.push_back(std::move(value));
    return &elements.back();
  }
  bool Put(Json&& value) {
    Add(std::move(value));
    return true;
  }
  bool Begin(Json&& value) {
    if (levels_.size() >= kMostWithin) {
      ThrowInvalidArgument(
          absl::StrCat("network JSON: values within one another are deeper than ", kMostWithin));
    }
    levels_.push_back({Add(std::move(value)), ""});
    return true;
  }
  bool End() {
    levels_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Level> levels_;
};

}  // namespace

void RefuseJson(const std::string& path, const std::string& found, const std::string& expected) {
  ThrowInvalidArgument(absl::StrCat("network JSON: ", Plain(path),
                                    path.empty() ? "found " : ": found ", Plain(found),
                                    ", expected ", Plain(expected)));
}

std::string ShownJson(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) {
    text.resize(kMostShown);
    text += "...";
  }
  return text;
}

JsonTree::JsonTree(absl::string_view text) {
  // Which the parser takes for the end.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    ThrowInvalidArgument(
        absl::StrCat("network JSON: found a zero byte at byte ", nul, ", expected none"));
  }
  absl::Cleanup take_apart = [&] { TakeApart(root_); };
  TreeBuilder builder(root_);
  Json::sax_parse(text.begin(), text.end(), &builder);
  std::move(take_apart).Cancel();
}

JsonTree::~JsonTree() { TakeApart(root_); }

void JsonWriter::Key(const std::string& name) {
  Level& level = levels_.back();
  level.key = name;
  if (!level.keys.insert(name).second) RefuseJson(Path(), "two fields", "one of that name");
  if (level.values++ > 0) text_ += ',';
  NewLine();
  absl::StrAppend(&text_, Json(name).dump(-1, ' ', false, Json::error_handler_t::replace),
                  indent_ >= 0 ? ": " : ":");
}

void JsonWriter::Value(double number) {
  if (!std::isfinite(number)) RefuseJson(Path(), absl::StrCat(number), "a finite number");
  Leaf(number);
}

void JsonWriter::Begin(char bracket) {
  BeforeElement();
  text_ += bracket;
  levels_.push_back({.is_array = bracket == '['});
}

void JsonWriter::End(char bracket) {
  const bool is_empty = levels_.back().values == 0;
  levels_.pop_back();
  if (!is_empty) NewLine();
  text_ += bracket;
}

void JsonWriter::NewLine() {
  if (indent_ < 0) return;
  text_ += '\n';
  text_.append(levels_.size() * static_cast<size_t>(indent_), ' ');
}

void JsonWriter::BeforeElement() {
  if (levels_.empty() || !levels_.back().is_array) return;
  if (levels_.back().values++ > 0) text_ += ',';
  NewLine();
}

void JsonWriter::Leaf(const Json& value) {
  BeforeElement();
  text_ += value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string JsonWriter::Path() const {
  std::string path;
  for (const Level& level : levels_) {
    level.is_array ? absl::StrAppend(&path, "[", level.values - 1, "]")
                   : absl::StrAppend(&path, path.empty() ? "" : ".", level.key);
  }
  return path;
}

}  // namespace tidepool::nn
