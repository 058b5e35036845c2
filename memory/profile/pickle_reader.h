// Reads Python's pickles of plain values: None, booleans, whole numbers of 64 bits, floats, text, bytes, lists, tuples
// and dictionaries, of protocols 2 to 5. Nothing in a pickle is ever called: whatever would make an object of a class or
// call a function is refused.
//
//   const Pickle pickle(bytes, "snapshot.pickle");
//   const Pickle::Value traces = pickle.root().At("device_traces");
//   for (const Pickle::Value entry : traces.items()) ... entry.At("action").Text() ...
//
// Errors are kDataLoss with the byte's offset. Values refer to the pickle, which refers to `bytes`. Values may be parts
// of several others, as in Python: who walks through all of them has to expect to meet one again and again. No value
// holds itself.
// Cost: one pass; at most 32 bytes for each byte. Threads: reading is any's.
#ifndef TIDEPOOL_MEMORY_PROFILE_PICKLE_READER_H_
#define TIDEPOOL_MEMORY_PROFILE_PICKLE_READER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool {

class Pickle {
 public:
  enum class Type : uint8_t { kNone, kBool, kInt, kFloat, kText, kBytes, kList, kTuple, kDict };

  // Throws kDataLoss; kInvalidArgument for more than kMostBytes. `what` names it in messages.
  Pickle(std::string_view bytes, std::string what);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  static constexpr size_t kMostBytes = size_t{1} << 31;

  class Value;
  Value root() const;

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;
  static constexpr uint32_t kMark = UINT32_MAX - 1;

  // Of text: its place among the bytes and its length. Of lists and dictionaries: the first link, the last and how
  // many there are.
  struct Node {
    Type type;
    bool held;  // by another value: nothing is added to it any more
    uint32_t first;
    union {
      int64_t number;
      double real;
      struct {
        uint32_t last, count;
      };
    };
  };
  struct Link {
    uint32_t node, next;
  };
  class Reader;

  [[noreturn]] void ThrowBroken(size_t offset, const std::string& why) const;

  std::string_view bytes_;
  const std::string what_;
  std::deque<Node> nodes_;
  std::deque<Link> links_;
  uint32_t root_ = kNothing;
};

class Pickle::Value {
 public:
  Type type() const { return node().type; }
  bool is(Type type) const { return this->type() == type; }
  // Equal numbers: the same value.
  uint32_t number() const { return node_; }

  // Throw kDataLoss for another type, naming what was expected.
  int64_t Int() const;  // a bool too
  std::string_view Text() const;
  size_t size() const;  // of lists, tuples; of dictionaries, keys
  // Of dictionaries by a text as key: the last there is; none: a value of type kNone.
  Value At(std::string_view key) const;

  // In order; of a dictionary key, value, key, value.
  class Iterator {
   public:
    Iterator(const Pickle* pickle, uint32_t link) : pickle_(pickle), link_(link) {}
    Value operator*() const { return Value(pickle_, pickle_->links_[link_].node); }
    Iterator& operator++() {
      link_ = pickle_->links_[link_].next;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const Pickle* pickle_;
    uint32_t link_;
  };
  Iterator begin() const;
  Iterator end() const { return {pickle_, kNothing}; }

 private:
  friend class Pickle;
  Value(const Pickle* pickle, uint32_t node) : pickle_(pickle), node_(node) {}
  const Node& node() const;
  [[noreturn]] void ThrowNot(const char* expected) const;

  const Pickle* pickle_;
  uint32_t node_;  // kNothing: none
};

inline Pickle::Value Pickle::root() const { return Value(this, root_); }

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_PICKLE_READER_H_
