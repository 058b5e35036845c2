// Pages of a device that grow in place.
//
// A Pages object reserves a range of addresses once and commits memory at its front, so that a
// workspace can grow between cycles without moving. Committed memory is retained until Resize() or
// the destructor gives it back. On the host, large ranges ask for huge pages; only the readable tail
// of one that fills these has a page of the ordinary size.
//
// Errors: OutOfMemoryError when a budget or the provider refuses; the object is unchanged then, but
// for moves that give first. Every request to the provider is counted in MemoryTracker::Global().
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_PROVIDER_PAGES_H_
#define TIDEPOOL_MEMORY_PROVIDER_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/host_provider.h"

namespace tidepool {

struct PagesOptions {
  bool large_pages = true;  // for ranges of at least that size, where the provider has them
  // A range that a large page would be more than a 64th of ends with pages of the ordinary size.
  bool fits = false;
  bool prefault = true;      // touch committed memory at once; else at first use, or by Prefault()
  size_t reserve_bytes = 0;  // address space; 0: the provider's default, or what is granted
  MemoryOwner* owner = nullptr;  // whose budget the memory is taken from; null: the process
};

// What becomes of the bytes when a range has to move because it outgrows its reserved addresses.
enum class PagesMove {
  // The old memory stays until the new one is there, so that a refusal changes nothing: both are
  // held for a moment. (The bytes are not copied.)
  kHoldsBoth,
  // The old memory goes first: never more is held than the larger of the two. A refusal loses the
  // bytes, and where the old size is refused as well, all of it: committed_bytes() says.
  kGivesFirst,
};

class Pages {
 public:
  explicit Pages(PagesOptions options = {}, DeviceProvider& provider = HostProvider())
      : options_(options), provider_(&provider), charge_(provider.device(), options.owner) {}
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // Makes at least `bytes` usable (plus the readable tail). The base address stays the same unless
  // the reserved range is too small; contents of the kept part survive only while the base stays.
  // Shrinking returns whole pages. 0 gives everything back.
  void Resize(size_t bytes, PagesMove move = PagesMove::kHoldsBoth);
  // Holes: what lies in the middle goes back and comes again, untouched even if it had been prefaulted. While
  // there are some, pages move only with PagesMove::kHoldsBoth. Holes that are cut off by Resize() go.
  //
  // Of [offset, offset + bytes), which nobody uses: whole pages, after the readable tail of what lies below,
  // as far as they are not in holes; `splits`: of the ordinary size also where pages are large. False: there are
  // none, or they were refused; nothing changed. (Of several parts, between holes, the first ones may go alone.)
  bool MakeHole(size_t offset, size_t bytes, bool splits = false) noexcept;
  // Of an object that has no memory: addresses for `bytes` and their readable tail, all of them one hole. False:
  // refused. Throws std::bad_alloc, and where the device is lost.
  bool ReserveHole(size_t bytes);
  // Of what FillHole() would fill.
  size_t HoleBytesIn(size_t offset, size_t bytes) const;
  // Of holes what these bytes and their readable tail lie in. Throws as Resize(): of several holes some may
  // be filled then. Bytes are of unknown contents.
  void FillHole(size_t offset, size_t bytes);
  // The lowest one, filled. Throws likewise, nothing changed; there must be one.
  void FillFirstHole() { FillPart(0, holes_.front()); }
  struct Hole {
    size_t begin, end;
  };
  const std::vector<Hole>& holes() const { return holes_; }  // ascending
  // Nothing at or above is one; 0: there are none.
  size_t hole_end() const { return holes_.empty() ? 0 : holes_.back().end; }

  // Touches the first `bytes` and their tail as far as that was not done before.
  void Prefault(size_t bytes) noexcept;

  DeviceProvider& provider() const { return *provider_; }
  std::byte* base() const { return base_; }
  // For so many bytes more, as memory_events.h tells it.
  MemoryRequest RequestOf(size_t bytes) const;
  // Whole pages, readable tail included, holes not.
  size_t committed_bytes() const { return committed_ - hole_bytes_; }
  size_t reserved_bytes() const { return reserved_; }
  size_t prefaulted_bytes() const { return prefaulted_; }
  // How often growth beyond the reserved range moved the base.
  uint64_t relocations() const { return relocations_; }

 private:
  bool Reserve(size_t bytes);
  void Relocate(size_t bytes, size_t wanted, PagesMove move);
  void GiveFirst(Pages& larger, size_t bytes, size_t wanted);
  void Extend(size_t wanted, bool large_pages);
  void Commit(size_t offset, size_t bytes, bool large_pages);
  void CutTo(size_t wanted) noexcept;
  Hole HoleWithin(size_t offset, size_t bytes, size_t unit) const;
  Hole PagesOf(size_t offset, size_t bytes) const;
  bool MakePart(Hole part) noexcept;
  void FillPart(size_t number, Hole part);
  void Swap(Pages& other);
  void ReleaseAll() noexcept;
  bool IsLarge(size_t bytes) const;
  size_t Unit(size_t bytes) const;
  size_t CommittedFor(size_t bytes) const;

  PagesOptions options_;
  DeviceProvider* provider_;
  std::byte* base_ = nullptr;
  size_t reserved_ = 0;
  size_t committed_ = 0;  // up to here, but for holes
  std::vector<Hole> holes_;
  size_t hole_bytes_ = 0;
  size_t prefaulted_ = 0;
  uint64_t relocations_ = 0;
  BudgetCharge charge_;  // of committed_bytes()
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_PAGES_H_
