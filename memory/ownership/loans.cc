// Loans: which nodes an array is lent to (memory/sync/loan_book.h). The owner stays what it was all the while.
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/memory/sync/loan_book.h"

namespace tidepool {
namespace {

using Word = OwnerWord<StdSync>;

constinit LoanBook<StdSync, Loan, Buffer, OwnerNode> book;

}  // namespace

StdSync::Mutex& internal::LoanMutex() noexcept { return book.mutex(); }

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
    ThrowFailedPrecondition(
        absl::StrCat("Lend: ", ref().ToString(), " is closed; the arrays stay where they were"));
  }
  const uint64_t borrower_ref = ref().bits();
  for (size_t i = 0; i < handles.size(); ++i) {
    Buffer* buffer = handles[i]->get();
    if (buffer == nullptr) continue;
    Loan* spare = loans[i].release();
    book.Lend(buffer, borrower, borrower_ref, spare, NodeOf);
    loans[i].reset(spare);
  }
  std::lock_guard<SpinLock> lock(borrower.lock);
  --borrower.arriving;
}

int64_t Ownership::loans() const {
  std::lock_guard<std::mutex> lock(book.mutex());
  return node_ != nullptr ? node_->loans.get() : 0;
}

uint64_t CurrentNodeOf(const Buffer& buffer) {
  if ((buffer.care.load(std::memory_order_relaxed) & Buffer::kLent) != 0) {
    std::lock_guard<std::mutex> lock(book.mutex());
    const Loan* loan = buffer.link.loans.load(std::memory_order_relaxed);
    if (loan != nullptr) return loan->borrower.get()->ref.load(std::memory_order_relaxed);
  }
  const uint64_t owner = buffer.link.node.Get();
  return owner != Word::kClosed ? owner : 0;
}

namespace internal {

int64_t ListLoans(OwnerNode& node, std::vector<OwnedArray>* arrays) {
  std::lock_guard<std::mutex> lock(book.mutex());
  if (arrays == nullptr) return node.loans.get();
  for (const Loan* loan = node.newest_loan.load(std::memory_order_relaxed); loan != nullptr;
       loan = loan->older.get()) {
    const Buffer& buffer = *loan->item.get();
    if (buffer.IsAlive()) {
      arrays->push_back({buffer.id, static_cast<int64_t>(buffer.bytes), true, ""});
    }
  }
  return node.loans.get();
}

bool IsLentTo(const Buffer& buffer, const OwnerNode& node) noexcept {
  std::lock_guard<std::mutex> lock(book.mutex());
  return book.Find(buffer, node) != nullptr;
}

void EndLoans(Buffer* buffer) noexcept { book.EndAll(buffer); }

bool OutlivesOwner(Buffer* buffer) noexcept { return book.OutlivesOwner(buffer); }

bool EndLoanTo(Buffer* buffer, const OwnerNode& node) noexcept {
  const MemoryBudget::TellLater later;  // without the book's lock
  ImportRelease after[1];
  int after_count = 0;
  const bool ended = book.End(buffer, node, [&](Buffer* const* buffers, int count) {
    MarkClosed(buffers, count, nullptr);
    CloseClaimed(buffers, count, after, &after_count);
  });
  for (int i = 0; i < after_count; ++i) after[i].release(after[i].context);
  return ended;
}

void ReturnLoans(OwnerNode& node, ClosedBy* closed_by) noexcept {
  constexpr int kAtOnce = 32;
  while (node.newest_loan.load(std::memory_order_relaxed) != nullptr) {
    const MemoryBudget::TellLater later;
    ImportRelease after[kAtOnce];
    int after_count = 0;
    book.EndSome<kAtOnce>(node, [&](Buffer* const* ended, int count) {
      MarkClosed(ended, count, closed_by);
      CloseClaimed(ended, count, after, &after_count);
    });
    for (int i = 0; i < after_count; ++i) after[i].release(after[i].context);
  }
}

}  // namespace internal

}  // namespace tidepool
