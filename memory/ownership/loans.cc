// Loans: which nodes an array is lent to. A stack per array and a list per borrower, both under one
// mutex; the owner stays what it was all the while.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"

namespace tidepool {
namespace {

using Word = OwnerWord<StdSync>;

constinit std::mutex loan_mutex;

// Below: the loan mutex is held.

Loan* FindLoan(const Buffer& buffer, const OwnerNode& borrower) {
  Loan* loan = buffer.link.loans.load(std::memory_order_relaxed);
  while (loan != nullptr && loan->borrower != &borrower) loan = loan->below;
  return loan;
}

void PutOnTop(Loan* loan) {
  std::atomic<Loan*>& top = loan->buffer->link.loans;
  loan->above = nullptr;
  loan->below = top.load(std::memory_order_relaxed);
  if (loan->below != nullptr) loan->below->above = loan;
  top.store(loan, std::memory_order_relaxed);
}

void TakeOffStack(Loan* loan) {
  if (loan->above != nullptr) {
    loan->above->below = loan->below;
  } else {
    loan->buffer->link.loans.store(loan->below, std::memory_order_relaxed);
  }
  if (loan->below != nullptr) loan->below->above = loan->above;
}

void Unlink(Loan* loan) {
  TakeOffStack(loan);
  OwnerNode& borrower = *loan->borrower;
  if (loan->newer != nullptr) {
    loan->newer->older = loan->older;
  } else {
    borrower.newest_loan.store(loan->older, std::memory_order_relaxed);
  }
  if (loan->older != nullptr) loan->older->newer = loan->newer;
  --borrower.loans;
  delete loan;
}

void UnlinkAll(Buffer* buffer) {
  while (Loan* loan = buffer->link.loans.load(std::memory_order_relaxed)) Unlink(loan);
  buffer->care.fetch_and(static_cast<uint8_t>(~Buffer::kOwnerGone), std::memory_order_relaxed);
}

// Nothing, of a buffer that is closed.
void LendLocked(Buffer* buffer, OwnerNode& borrower, std::unique_ptr<Loan>& spare) {
  // Who closes it moves the word and then looks for kLent: one of the two sees the other.
  buffer->care.fetch_or(Buffer::kLent, std::memory_order_acquire);
  if (buffer->link.node.Get() == Word::kClosed) return;
  if (Loan* loan = FindLoan(*buffer, borrower)) {
    TakeOffStack(loan);
    PutOnTop(loan);
    return;
  }
  Loan* loan = spare.release();
  loan->buffer = buffer;
  loan->borrower = &borrower;
  PutOnTop(loan);
  loan->older = borrower.newest_loan.load(std::memory_order_relaxed);
  if (loan->older != nullptr) loan->older->newer = loan;
  borrower.newest_loan.store(loan, std::memory_order_relaxed);
  ++borrower.loans;
}

}  // namespace

void Ownership::Lend(const BufferHandle& handle) {
  const BufferHandle* one = &handle;
  LendAll(absl::MakeConstSpan(&one, 1));
}

void Ownership::LendAll(absl::Span<const BufferHandle* const> handles) {
  if (is_null()) return;
  OwnerNode& borrower = Checked("Lend");
  if (borrower.is_root) {
    ThrowFailedPrecondition(absl::StrCat("Lend: ", ref().ToString(),
                                         " is a root, which cannot borrow: it never closes"));
  }
  std::vector<std::unique_ptr<Loan>> loans;
  loans.reserve(handles.size());
  for (const BufferHandle* handle : handles) {
    const Buffer* buffer = handle->get();
    if (buffer != nullptr && !buffer->IsAlive()) {
      ThrowFailedPrecondition(absl::StrCat("Lend: the array of ", buffer->bytes,
                                           " bytes is not alive; nothing was lent"));
    }
    loans.push_back(std::make_unique<Loan>());
  }
  borrower.lock.lock();
  const bool open = borrower.state.load(std::memory_order_relaxed) == NodeState::kOpen;
  if (open) ++borrower.arriving;  // closing waits for it
  borrower.lock.unlock();
  if (!open) {
    ThrowFailedPrecondition(absl::StrCat("Lend: ", ref().ToString(),
                                         " is closed; the arrays stay where they were"));
  }
  const uint64_t borrower_ref = ref().bits();
  for (size_t i = 0; i < handles.size(); ++i) {
    Buffer* buffer = handles[i]->get();
    if (buffer == nullptr) continue;
    for (;;) {
      const uint64_t owner_ref = buffer->link.node.Get();
      if (owner_ref == borrower_ref) break;
      // The owner's lock: it either sees the loan when it closes or has closed the buffer before.
      OwnerNode* owner = NodeOf(owner_ref);
      if (owner != nullptr) owner->lock.lock();
      const bool unmoved = buffer->link.node.Get() == owner_ref;
      if (unmoved) {
        std::lock_guard<std::mutex> lock(loan_mutex);
        LendLocked(buffer, borrower, loans[i]);
      }
      if (owner != nullptr) owner->lock.unlock();
      if (unmoved) break;
    }
  }
  std::lock_guard<SpinLock> lock(borrower.lock);
  --borrower.arriving;
}

int64_t Ownership::loans() const {
  std::lock_guard<std::mutex> lock(loan_mutex);
  return node_ != nullptr ? node_->loans : 0;
}

uint64_t CurrentNodeOf(const Buffer& buffer) {
  if ((buffer.care.load(std::memory_order_relaxed) & Buffer::kLent) != 0) {
    std::lock_guard<std::mutex> lock(loan_mutex);
    const Loan* loan = buffer.link.loans.load(std::memory_order_relaxed);
    if (loan != nullptr) return loan->borrower->ref.load(std::memory_order_relaxed);
  }
  const uint64_t owner = buffer.link.node.Get();
  return owner != Word::kClosed ? owner : 0;
}

namespace internal {

int64_t ListLoans(OwnerNode& node, std::vector<OwnedArray>* arrays) {
  std::lock_guard<std::mutex> lock(loan_mutex);
  if (arrays == nullptr) return node.loans;
  for (const Loan* loan = node.newest_loan.load(std::memory_order_relaxed); loan != nullptr;
       loan = loan->older) {
    const Buffer& buffer = *loan->buffer;
    if (buffer.IsAlive()) {
      arrays->push_back({buffer.id, static_cast<int64_t>(buffer.bytes), true, ""});
    }
  }
  return node.loans;
}

bool IsLentTo(const Buffer& buffer, const OwnerNode& node) noexcept {
  std::lock_guard<std::mutex> lock(loan_mutex);
  return FindLoan(buffer, node) != nullptr;
}

void EndLoans(Buffer* buffer) noexcept {
  std::lock_guard<std::mutex> lock(loan_mutex);
  UnlinkAll(buffer);
}

bool OutlivesOwner(Buffer* buffer) noexcept {
  std::lock_guard<std::mutex> lock(loan_mutex);
  if (buffer->link.loans.load(std::memory_order_relaxed) == nullptr) return false;
  buffer->care.fetch_or(Buffer::kOwnerGone, std::memory_order_relaxed);
  // Under the mutex: the last borrower to close finds it its handles', and may close it.
  buffer->link.node.Set(Word::kHandles);
  return true;
}

namespace {

// After a loan ended: true when that was the last one of a buffer whose owner is gone; the caller
// closes it then, under the mutex.
bool EndsNow(Buffer* buffer) {
  if (buffer->link.loans.load(std::memory_order_relaxed) != nullptr) return false;
  // kLent stays: the last release of a buffer that was ever lent takes the mutex, so that the record
  // does not go while this has it.
  const uint8_t care = buffer->care.fetch_and(static_cast<uint8_t>(~Buffer::kOwnerGone),
                                              std::memory_order_relaxed);
  // Not if it was attached elsewhere meanwhile.
  return (care & Buffer::kOwnerGone) != 0 && buffer->link.node.MoveFromHandles(Word::kClosed);
}

}  // namespace

bool EndLoanTo(Buffer* buffer, const OwnerNode& node) noexcept {
  ImportRelease after[1];
  int after_count = 0;
  {
    std::lock_guard<std::mutex> lock(loan_mutex);
    Loan* loan = FindLoan(*buffer, node);
    if (loan == nullptr) return false;
    tidepool::Unlink(loan);
    if (EndsNow(buffer)) {
      MarkClosed(&buffer, 1, nullptr);
      CloseClaimed(&buffer, 1, after, &after_count);
    }
  }
  for (int i = 0; i < after_count; ++i) after[i].release(after[i].context);
  return true;
}

void ReturnLoans(OwnerNode& node, ClosedBy* closed_by) noexcept {
  constexpr int kAtOnce = 32;
  while (node.newest_loan.load(std::memory_order_relaxed) != nullptr) {
    Buffer* ended[kAtOnce];
    ImportRelease after[kAtOnce];
    int count = 0, after_count = 0;
    {
      std::lock_guard<std::mutex> lock(loan_mutex);
      for (int i = 0; i < kAtOnce; ++i) {
        Loan* loan = node.newest_loan.load(std::memory_order_relaxed);
        if (loan == nullptr) break;
        Buffer* buffer = loan->buffer;
        tidepool::Unlink(loan);
        if (EndsNow(buffer)) ended[count++] = buffer;
      }
      if (count > 0) {
        MarkClosed(ended, count, closed_by);
        CloseClaimed(ended, count, after, &after_count);
      }
    }
    for (int i = 0; i < after_count; ++i) after[i].release(after[i].context);
  }
}

}  // namespace internal

}  // namespace tidepool
