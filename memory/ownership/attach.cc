// Ownership moves: attach, detach, return. A move locks the nodes, looks, and relinks; whatever can fail
// does so before.
#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_budgets.h"
#include "tidepool/memory/ownership/ownership.h"

namespace tidepool {
namespace {

using Word = OwnerWord<StdSync>;

constexpr uint8_t kLoanBits = Buffer::kLent | Buffer::kOwnerGone;

enum class Refusal { kNone, kClosed, kCapped, kBudget, kRetry };

// A buffer on its way to a node.
struct Arrival {
  Buffer* buffer;
  size_t index = 0;  // among those asked for
  uint64_t from_ref = Word::kHandles;
  OwnerNode* from = nullptr;

  int64_t bytes() const { return static_cast<int64_t>(buffer->bytes); }
};

// Where it is now; false when it is closed.
bool Locate(Arrival& arrival) noexcept {
  arrival.from_ref = arrival.buffer->link.node.Get();
  arrival.from = NodeOf(arrival.from_ref);
  return arrival.from_ref != Word::kClosed;
}

// With the locks of the target and of all nodes the buffers are in. All or nothing.
Refusal Receive(OwnerNode& target, absl::Span<const Arrival> arrivals) noexcept {
  size_t moving = 0;
  for (const Arrival& arrival : arrivals) {
    OwnerNode* from = arrival.from;
    if (from != nullptr && !from->Owns(arrival.buffer)) {
      // Moved meanwhile; or dropped with the cycle it was made in.
      if (from->ref.load(std::memory_order_relaxed) != arrival.from_ref) {
        arrival.buffer->link.node.DropOutdated(arrival.from_ref);
      }
      return Refusal::kRetry;
    }
    moving += from != &target;
  }
  if (!target.is_open()) return Refusal::kClosed;
  if (moving > 0 && target.caps.load(std::memory_order_relaxed) > 0) return Refusal::kCapped;
  // Room for them, and the right to those that are their handles': closing may have taken it.
  Refusal refusal = Refusal::kNone;
  size_t taken = 0;
  for (; taken < arrivals.size(); ++taken) {
    const Arrival& arrival = arrivals[taken];
    if (!internal::Arrive(arrival.from, target, 1, arrival.bytes())) {
      refusal = Refusal::kBudget;
      break;
    }
    if (arrival.from == nullptr && !target.Claim(arrival.buffer)) {
      internal::CancelArrival(nullptr, target, 1, arrival.bytes());
      refusal = Refusal::kRetry;
      break;
    }
  }
  if (refusal != Refusal::kNone) {
    while (taken-- > 0) {
      const Arrival& arrival = arrivals[taken];
      internal::CancelArrival(arrival.from, target, 1, arrival.bytes());
      if (arrival.from == nullptr) arrival.buffer->link.node.Set(Word::kHandles);
    }
    return refusal;
  }
  for (const Arrival& arrival : arrivals) {
    Buffer* buffer = arrival.buffer;
    if (arrival.from == nullptr) {
      target.Link(buffer, target.HasInCycle(*buffer));
    } else if (arrival.from != &target) {
      internal::Leave(*arrival.from, &target, 1, arrival.bytes());
      arrival.from->MoveTo(target, buffer, target.HasInCycle(*buffer));
    }
    if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) != 0) internal::EndLoans(buffer);
  }
  return refusal;
}

// `index`: which one of several.
[[noreturn]] void ThrowDeadBuffer(const char* operation, const Buffer& buffer, int64_t index = -1) {
  ThrowFailedPrecondition(absl::StrCat(
      operation, ": the array ", index < 0 ? "" : absl::StrCat("at place ", index, ", "), "of ",
      buffer.bytes, " bytes is not alive", index < 0 ? "" : "; none was moved"));
}

[[noreturn]] void ThrowRefused(const char* operation, OwnerNode& target, Refusal refusal,
                               int64_t arrays, int64_t bytes) {
  const uint64_t ref = target.ref.load(std::memory_order_relaxed);
  if (refusal == Refusal::kBudget) internal::ThrowBeyondBudget(ref, arrays, bytes, operation);
  ThrowFailedPrecondition(absl::StrCat(
      operation, ": ", DescribeNode(ref),
      refusal == Refusal::kClosed ? " is closed" : " is capped: nothing new may be attached to it",
      "; the array stays where it was"));
}

Refusal MakeRoom(const OwnerNode& target, int64_t arrays, int64_t bytes) {
  return internal::MakeRoom(target.opened_ref, arrays, bytes) ? Refusal::kRetry : Refusal::kBudget;
}

void AttachTo(OwnerNode& target, Buffer* buffer, const char* operation) {
  Refusal refusal;
  do {
    Arrival arrival{buffer};
    if (!buffer->IsAlive() || !Locate(arrival)) ThrowDeadBuffer(operation, *buffer);
    internal::Lock(arrival.from, &target);
    refusal = Receive(target, absl::MakeConstSpan(&arrival, 1));
    internal::Unlock(arrival.from, &target);
    if (refusal == Refusal::kBudget) refusal = MakeRoom(target, 1, arrival.bytes());
  } while (refusal == Refusal::kRetry);
  if (refusal != Refusal::kNone) {
    ThrowRefused(operation, target, refusal, 1, static_cast<int64_t>(buffer->bytes));
  }
}

// The buffers that are asked for, once each, in that order.
std::vector<Arrival> ArrivalsOf(absl::Span<const BufferHandle* const> buffers) {
  std::vector<Arrival> arrivals;
  arrivals.reserve(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i]->get() != nullptr) arrivals.push_back({buffers[i]->get(), i});
  }
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
    return a.buffer != b.buffer ? std::less<Buffer*>()(a.buffer, b.buffer) : a.index < b.index;
  });
  const auto same = [](const Arrival& a, const Arrival& b) { return a.buffer == b.buffer; };
  arrivals.erase(std::unique(arrivals.begin(), arrivals.end(), same), arrivals.end());
  std::sort(arrivals.begin(), arrivals.end(),
            [](const Arrival& a, const Arrival& b) { return a.index < b.index; });
  return arrivals;
}

void AttachAllTo(OwnerNode& target, absl::Span<const BufferHandle* const> buffers,
                 const char* operation) {
  std::vector<Arrival> arrivals = ArrivalsOf(buffers);
  std::vector<OwnerNode*> nodes;
  nodes.reserve(arrivals.size() + 1);
  Refusal refusal;
  int64_t arrays, bytes;
  do {
    arrays = bytes = 0;
    nodes.assign(1, &target);
    for (Arrival& arrival : arrivals) {
      if (!arrival.buffer->IsAlive() || !Locate(arrival)) {
        ThrowDeadBuffer(operation, *arrival.buffer, static_cast<int64_t>(arrival.index));
      }
      if (arrival.from == &target) continue;
      if (arrival.from != nullptr) nodes.push_back(arrival.from);
      ++arrays;
      bytes += arrival.bytes();
    }
    std::sort(nodes.begin(), nodes.end(), std::less<OwnerNode*>());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    for (OwnerNode* node : nodes) node->lock.lock();
    refusal = Receive(target, arrivals);
    for (OwnerNode* node : nodes) node->lock.unlock();
    if (refusal == Refusal::kBudget) refusal = MakeRoom(target, arrays, bytes);
  } while (refusal == Refusal::kRetry);
  if (refusal != Refusal::kNone) ThrowRefused(operation, target, refusal, arrays, bytes);
}

void GiveToHandles(Buffer* buffer) noexcept {
  buffer->link.node.LeaveNode([buffer](uint64_t to) { return internal::TakeOut(buffer, to); });
  if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) != 0) internal::EndLoans(buffer);
}

}  // namespace

void Ownership::Attach(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& target = Checked("Attach");
  // An array without elements has no bytes to own.
  if (handle.get() != nullptr) AttachTo(target, handle.get(), "Attach");
}

void Ownership::AttachAll(absl::Span<const BufferHandle* const> buffers) {
  if (is_null()) return;
  AttachAllTo(Checked("AttachAll"), buffers, "AttachAll");
}

void Ownership::Detach(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& node = Checked("Detach");
  Buffer* buffer = handle.get();
  if (buffer == nullptr) return;
  const bool owned = internal::TakeOutOf(node, buffer, Word::kHandles);
  if ((buffer->care.load(std::memory_order_relaxed) & kLoanBits) == 0) return;
  // Whoever lent it here has lost it: a detached array is its handles'.
  if (owned || internal::IsLentTo(*buffer, node)) GiveToHandles(buffer);
}

OwnerNode& Ownership::CheckMayReturn() const {
  OwnerNode& node = Checked("Return");
  if (node.is_root) {
    ThrowFailedPrecondition(
        absl::StrCat("Return: ", ref().ToString(), " is a root and has no parent"));
  }
  if (!is_open()) ThrowRefused("Return", node, Refusal::kClosed, 0, 0);
  return node;
}

void Ownership::Return(const BufferHandle& handle) {
  if (is_null()) return;
  OwnerNode& node = CheckMayReturn();
  Buffer* buffer = handle.get();
  if (buffer == nullptr) return;
  if (!buffer->IsAlive()) ThrowDeadBuffer("Return", *buffer);
  const bool owned = buffer->link.node.Get() == ref().bits();
  if (!owned && internal::EndLoanTo(buffer, node)) return;
  if (!node.parent->is_root) return AttachTo(*node.parent, buffer, "Return");
  GiveToHandles(buffer);
}

void Ownership::ReturnAll(absl::Span<const BufferHandle* const> handles) {
  if (is_null()) return;
  OwnerNode& node = CheckMayReturn();
  // What each of them does is decided before the first moves: one may be there twice.
  std::vector<const BufferHandle*> moves;
  std::vector<Buffer*> lent;
  for (const BufferHandle* handle : handles) {
    Buffer* buffer = handle->get();
    if (buffer == nullptr) continue;
    if (!buffer->IsAlive()) ThrowDeadBuffer("Return", *buffer);
    const bool owned = buffer->link.node.Get() == ref().bits();
    if (!owned && internal::IsLentTo(*buffer, node)) {
      lent.push_back(buffer);
    } else {
      moves.push_back(handle);
    }
  }
  if (node.parent->is_root) {
    for (const BufferHandle* handle : moves) GiveToHandles(handle->get());
  } else if (!moves.empty()) {
    AttachAllTo(*node.parent, moves, "Return");
  }
  for (Buffer* buffer : lent) internal::EndLoanTo(buffer, node);
}

namespace internal {

namespace {

// The buffer's word was `reference` of that node a moment ago.
inline bool TakeOutOf(OwnerNode& node, Buffer* buffer, uint64_t reference, uint64_t to) noexcept {
  return node.TakeOut(buffer, reference, to, [&node, buffer] {
    Leave(node, nullptr, 1, static_cast<int64_t>(buffer->bytes));
  });
}

}  // namespace

bool TakeOutOf(OwnerNode& node, Buffer* buffer, uint64_t to) noexcept {
  const uint64_t reference = buffer->link.node.Get();
  return NodeOf(reference) == &node && TakeOutOf(node, buffer, reference, to);
}

bool TakeOut(Buffer* buffer, uint64_t to) noexcept {
  const uint64_t reference = buffer->link.node.Get();
  OwnerNode* const node = NodeOf(reference);
  return node != nullptr && TakeOutOf(*node, buffer, reference, to);
}

}  // namespace internal

}  // namespace tidepool
