#include "tidepool/memory/profile/pickle_reader.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// Python's pickletools has all of them.
enum Opcode : uint8_t {
  kMarkOp = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinUnicode = 'X',
  kAppend = 'a',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

constexpr int kOldestProtocol = 2, kNewestProtocol = 5;

}  // namespace

class Pickle::Reader {
 public:
  explicit Reader(Pickle& pickle) : pickle_(pickle), bytes_(pickle.bytes_) {}

  void Read() {
    while (!Step()) {
    }
    if (at_ != bytes_.size()) pickle_.ThrowBroken(at_, "bytes behind its end");
  }

 private:
  [[noreturn]] void Throw(const std::string& why) { pickle_.ThrowBroken(began_, why); }

  std::string_view Take(size_t count) {
    if (count > bytes_.size() - at_) {
      Throw(absl::StrCat("found ", bytes_.size() - at_, " bytes more, expected ", count));
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  // Little-endian.
  uint64_t Unsigned(size_t count) {
    uint64_t value = 0;
    const std::string_view taken = Take(count);
    for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    return value;
  }

  void Push(uint32_t node) { stack_.push_back(node); }
  Node& PushNew(Type type) {
    if (pickle_.nodes_.size() >= kMark) Throw("more values than are read");
    pickle_.nodes_.push_back({type, false, kNothing, {0}});
    Push(static_cast<uint32_t>(pickle_.nodes_.size() - 1));
    return pickle_.nodes_.back();
  }
  Node& PushItems(Type type) {
    Node& node = PushNew(type);
    node.last = kNothing;
    node.count = 0;
    return node;
  }
  void PushNumber(int64_t value) { PushNew(Type::kInt).number = value; }
  void PushText(Type type, uint64_t length) {
    const auto begin = static_cast<int64_t>(at_);
    if (length > bytes_.size())
      Throw(absl::StrCat("text of ", length, " bytes is longer than all there is"));
    Take(length);
    Node& node = PushNew(type);
    node.first = static_cast<uint32_t>(length);
    node.number = begin;
  }
  void PushLong(uint64_t length) {
    if (length > 8) Throw(absl::StrCat("a whole number of ", length, " bytes, expected at most 8"));
    uint64_t value = Unsigned(length);
    if (length > 0 && length < 8 && (value >> (8 * length - 1)) != 0)
      value |= ~uint64_t{0} << (8 * length);
    PushNumber(static_cast<int64_t>(value));
  }

  uint32_t Pop() {
    if (stack_.empty() || stack_.back() == kMark) Throw("a value is missing");
    const uint32_t node = stack_.back();
    stack_.pop_back();
    return node;
  }
  // Where what stands above the last mark begins; the mark is taken off by who asks.
  size_t LastMark() {
    if (marks_.empty()) Throw("a mark is missing");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  // Nothing is added to what something holds, so no value ever holds itself.
  void Append(uint32_t to, uint32_t item) {
    Node& node = pickle_.nodes_[to];
    if (node.held || item == to) Throw("a value that may hold itself");
    if (pickle_.links_.size() >= kMark) Throw("more values than are read");
    pickle_.links_.push_back({item, kNothing});
    const auto link = static_cast<uint32_t>(pickle_.links_.size() - 1);
    if (node.first == kNothing) {
      node.first = link;
    } else {
      pickle_.links_[node.last].next = link;
    }
    node.last = link;
    ++node.count;
    pickle_.nodes_[item].held = true;
  }

  void AppendAbove(size_t mark, Type type) {
    if (mark == 0 || stack_[mark - 1] == kMark) Throw("a value is missing");
    const uint32_t to = stack_[mark - 1];
    if (pickle_.nodes_[to].type != type)
      Throw(type == Type::kList ? "expected a list" : "expected a dictionary");
    const std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(mark) + 1,
                                      stack_.end());
    stack_.resize(mark);
    if (type == Type::kDict && items.size() % 2 != 0) Throw("a key without a value");
    for (const uint32_t item : items) Append(to, item);
  }
  void MakeAbove(size_t mark, Type type) {
    const std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(mark) + 1,
                                      stack_.end());
    stack_.resize(mark);
    if (type == Type::kDict && items.size() % 2 != 0) Throw("a key without a value");
    Make(type, items);
  }
  void Make(Type type, const std::vector<uint32_t>& items) {
    PushItems(type);
    const uint32_t made = stack_.back();
    for (const uint32_t item : items) Append(made, item);
  }
  void AppendLast(Type type, size_t count) {
    uint32_t items[2];
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    if (stack_.empty() || stack_.back() == kMark) Throw("a value is missing");
    const uint32_t to = stack_.back();
    if (pickle_.nodes_[to].type != type)
      Throw(type == Type::kList ? "expected a list" : "expected a dictionary");
    for (size_t i = 0; i < count; ++i) Append(to, items[i]);
  }
  void TupleOf(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    Make(Type::kTuple, items);
  }

  void Put(uint64_t number) {
    if (stack_.empty() || stack_.back() == kMark) Throw("a value is missing");
    // Numbers are given in order, or nearly: no more room than bytes were read.
    if (number > at_)
      Throw(absl::StrCat("value number ", number, " of as many as there are bytes"));
    if (number >= memo_.size()) memo_.resize(number + 1, kNothing);
    memo_[number] = stack_.back();
    ++put_;
  }
  void Get(uint64_t number) {
    if (number >= memo_.size() || memo_[number] == kNothing)
      Throw(absl::StrCat("value number ", number, " was not put"));
    Push(memo_[number]);
  }

  // True: at the end.
  bool Step() {
    began_ = at_;
    const auto op = static_cast<uint8_t>(Take(1)[0]);
    switch (op) {
      case kProto: {
        const uint64_t protocol = Unsigned(1);
        if (protocol < kOldestProtocol || protocol > kNewestProtocol) {
          Throw(absl::StrCat("protocol ", protocol, ", expected ", kOldestProtocol, " to ",
                             kNewestProtocol));
        }
        return false;
      }
      case kFrame:
        Unsigned(8);
        return false;
      case kNone:
        PushNew(Type::kNone);
        return false;
      case kNewTrue:
        PushNew(Type::kBool).number = 1;
        return false;
      case kNewFalse:
        PushNew(Type::kBool).number = 0;
        return false;
      case kBinInt:
        PushNumber(static_cast<int32_t>(Unsigned(4)));
        return false;
      case kBinInt1:
        PushNumber(static_cast<int64_t>(Unsigned(1)));
        return false;
      case kBinInt2:
        PushNumber(static_cast<int64_t>(Unsigned(2)));
        return false;
      case kLong1:
        PushLong(Unsigned(1));
        return false;
      case kLong4:
        PushLong(Unsigned(4));
        return false;
      case kBinFloat: {
        const std::string_view bytes = Take(8);  // big-endian
        uint64_t bits = 0;
        for (const char byte : bytes) bits = bits << 8 | static_cast<uint8_t>(byte);
        std::memcpy(&PushNew(Type::kFloat).real, &bits, sizeof(bits));
        return false;
      }
      case kShortBinUnicode:
        PushText(Type::kText, Unsigned(1));
        return false;
      case kBinUnicode:
        PushText(Type::kText, Unsigned(4));
        return false;
      case kBinUnicode8:
        PushText(Type::kText, Unsigned(8));
        return false;
      case kShortBinBytes:
        PushText(Type::kBytes, Unsigned(1));
        return false;
      case kBinBytes:
        PushText(Type::kBytes, Unsigned(4));
        return false;
      case kEmptyList:
        PushItems(Type::kList);
        return false;
      case kEmptyTuple:
        PushItems(Type::kTuple);
        return false;
      case kEmptyDict:
        PushItems(Type::kDict);
        return false;
      case kMarkOp:
        marks_.push_back(static_cast<uint32_t>(stack_.size()));
        Push(kMark);
        return false;
      case kTuple:
        MakeAbove(LastMark(), Type::kTuple);
        return false;
      case kList:
        MakeAbove(LastMark(), Type::kList);
        return false;
      case kDict:
        MakeAbove(LastMark(), Type::kDict);
        return false;
      case kTuple1:
        TupleOf(1);
        return false;
      case kTuple2:
        TupleOf(2);
        return false;
      case kTuple3:
        TupleOf(3);
        return false;
      case kAppend:
        AppendLast(Type::kList, 1);
        return false;
      case kSetItem:
        AppendLast(Type::kDict, 2);
        return false;
      case kAppends:
        AppendAbove(LastMark(), Type::kList);
        return false;
      case kSetItems:
        AppendAbove(LastMark(), Type::kDict);
        return false;
      case kMemoize:
        Put(put_);
        return false;
      case kBinPut:
        Put(Unsigned(1));
        return false;
      case kLongBinPut:
        Put(Unsigned(4));
        return false;
      case kBinGet:
        Get(Unsigned(1));
        return false;
      case kLongBinGet:
        Get(Unsigned(4));
        return false;
      case kPop:
        Pop();
        return false;
      case kPopMark:
        stack_.resize(LastMark());
        return false;
      case kDup: {
        const uint32_t node = Pop();
        Push(node);
        Push(node);
        return false;
      }
      case kStop:
        pickle_.root_ = Pop();
        if (!stack_.empty()) Throw("it ends with more than one value");
        return true;
      case 'c':
      case 'i':
      case 'o':
      case 'R':
      case 'b':
      case 'P':
      case 'Q':
      case 0x81:
      case 0x82:
      case 0x83:
      case 0x84:
      case 0x92:
      case 0x93:
      case 0x97:
      case 0x98:
        Throw(absl::StrCat("opcode 0x", absl::Hex(op),
                           " would make an object or call a function; only plain values are read"));
      default:
        Throw(absl::StrCat("opcode 0x", absl::Hex(op),
                           " is none of plain values of protocols 2 to 5"));
    }
  }

  Pickle& pickle_;
  const std::string_view bytes_;
  size_t at_ = 0, began_ = 0;
  std::vector<uint32_t> stack_, marks_, memo_;
  uint64_t put_ = 0;
};

Pickle::Pickle(std::string_view bytes, std::string what) : bytes_(bytes), what_(OneLine(what)) {
  if (bytes.size() > kMostBytes) {
    ThrowInvalidArgument(
        absl::StrCat(what_, ": found ", bytes.size(), " bytes, expected at most ", kMostBytes));
  }
  Reader(*this).Read();
}

void Pickle::ThrowBroken(size_t offset, const std::string& why) const {
  ThrowDataLoss(absl::StrCat(what_, ": byte ", offset, " of the pickle: ", why));
}

}  // namespace tidepool
