#include "tidepool/ndarray/spill/spillable_array.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/spill/host_block.h"
#include "tidepool/memory/spill/spill_state.h"
#include "tidepool/memory/sync/std_sync.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/spill/spilled_array.h"

namespace tidepool {
namespace {

// What is made within goes to the heap and is that owner's, whatever the caller is in the middle of.
struct Outside {
  explicit Outside(MemoryOwner& to) : owner(to) {}
  const ScopeOutOfWorkspaces heap;
  const HandlesOwnScope handles;
  const MemoryOwnerScope owner;
};

NDArray OnTheHeap(NDArray array) {
  constexpr uint8_t kOthers = Buffer::kInTree | Buffer::kLent | Buffer::kHeld;
  const Buffer& buffer = *array.buffer().get();
  const auto bytes = static_cast<size_t>(array.NumElements() * DTypeBytes(array.dtype()));
  const bool has_all = array.is_dense() && bytes == buffer.bytes;
  const bool is_heap = !buffer.attached && !buffer.imported;
  if (has_all && is_heap && (buffer.care.load(std::memory_order_acquire) & kOthers) == 0 &&
      buffer.references.load(std::memory_order_acquire) == 1) {
    return array;
  }
  return array.CopyTo(Place::On(array.device()));
}

MemoryOwner& OwnerOf(const Buffer& buffer) {
  MemoryOwner* const owner = buffer.outside.charged_to;
  return owner != nullptr ? *owner : MemoryOwner::Process();
}

}  // namespace

struct SpillableArray::Item final : Spillables::Item {
  using Found = SpillState<StdSync>::Found;

  Item(Spillables& of, NDArray its_array, std::function<NDArray()> its_compute,
       std::string its_name)
      : Spillables::Item(its_array.device(), OwnerOf(*its_array.buffer().get()),
                         static_cast<int64_t>(its_array.buffer()->bytes), its_compute != nullptr,
                         std::move(its_name)),
        spillables(of),
        array(std::move(its_array)),
        shape(array.shape()),
        dtype(array.dtype()),
        compute(std::move(its_compute)) {}
  // What waits in a tier for `of`.
  Item(Item& of, size_t its_tier, NDArray its_array)
      : Spillables::Item(of, its_tier, its_array.device()),
        spillables(of.spillables),
        array(std::move(its_array)),
        shape(of.shape),
        dtype(of.dtype) {
    NoteKept();
  }
  ~Item() override {
    if (lower != nullptr) spillables.LeaveTier(*lower);
  }

  // On this thread the items that are being computed, one within the other.
  struct Computing {
    const Item* item;
    const Computing* outer;
  };
  static thread_local constinit const Computing* computing;

  NDArray Computed() {
    const Computing here{this, computing};
    computing = &here;
    const absl::Cleanup ends = [&] { computing = here.outer; };
    NDArray made = compute();
    if (!made.is_defined()) {
      ThrowFailedPrecondition(absl::StrCat("spillable \"", name,
                                           "\": computed again there is no array, expected ",
                                           shape.ToString(), " of ", DTypeName(dtype)));
    }
    return OnTheHeap(std::move(made));
  }
  void CheckNotComputing() const {
    for (const Computing* each = computing; each != nullptr; each = each->outer) {
      if (each->item != this) continue;
      ThrowFailedPrecondition(
          absl::StrCat("spillable \"", name, "\": what computes it again needs it itself"));
    }
  }

  int64_t LetGo(Found found, bool to_file) override {
    if (found == Found::kComing) {
      kept.DropPrefetch();
      return 0;
    }
    int64_t written = 0;
    if (found == Found::kGoing) {
      try {
        TakeWritten();
        written = bytes;
      } catch (const Error&) {
        // It is written anew, and whoever asked is told if that fails as well.
      }
    }
    if (!to_file && found == Found::kHere && PutIntoTier()) {
      array = NDArray();
      return written;
    }
    if (!IsWritten()) {
      kept = SpilledArray();  // of another content; its room may be needed
      kept = SpilledArray(spillables.file(), array);
      written = bytes;
    }
    array = NDArray();
    return written;
  }
  void Bring(bool) override {
    const Outside outside(owner);
    if (compute == nullptr) {
      if (!TakeFromTier()) array = kept.Restore();
    } else {
      array = Computed();
      if (array.shape() != shape || array.dtype() != dtype || array.device() != device) {
        const std::string found =
            absl::StrCat(array.shape().ToString(), " of ", DTypeName(array.dtype()));
        array = NDArray();
        ThrowFailedPrecondition(absl::StrCat("spillable \"", name, "\": computed again it is ",
                                             found, ", expected ", shape.ToString(), " of ",
                                             DTypeName(dtype), " on ", DeviceName(device)));
      }
    }
    NoteKept();
  }
  void BeginToBring() override {
    const Outside outside(owner);
    if (!WaitsInTier()) kept.Prefetch();
  }

  // ---- tiers ----

  // False: it lives on the host, or no tier has room.
  bool PutIntoTier() {
    if (home == Host() || compute != nullptr) return false;
    const std::vector<SpillTier>& tiers = spillables.tiers();
    for (auto t = static_cast<size_t>(tier + 1); t < tiers.size(); ++t) {
      if (tiers[t].device == home || !spillables.MakeRoomInTier(*this, t)) continue;
      const auto begin = std::chrono::steady_clock::now();
      try {
        lower = std::make_shared<Item>(*this, t, CopyIn(tiers[t].device));
      } catch (const OutOfMemoryError&) {
        continue;  // its device has less than its budgets say
      }
      if (IsWritten()) lower->kept = std::move(kept);
      kept = SpilledArray();
      try {
        spillables.EnterTier(lower, std::chrono::steady_clock::now() - begin);
      } catch (...) {
        kept = std::move(lower->kept);
        lower.reset();
        throw;
      }
      return true;
    }
    return false;
  }
  NDArray CopyIn(Device other) const {
    const Outside outside(owner);
    if (other != Host()) return array.CopyTo(Place::On(other));
    NDArray copy(BufferHandle(NewHostBlockFor(home, static_cast<size_t>(bytes))), shape, dtype);
    std::move(copy) = array;
    return copy;
  }
  // The array from the tier that has it. False: it is in the file alone.
  bool TakeFromTier() {
    while (lower != nullptr) {
      if (spillables.PinInTier(*lower)) {
        const auto begin = std::chrono::steady_clock::now();
        try {
          array = lower->array.CopyTo(Place::On(device));
        } catch (...) {
          lower->state.Unpin();
          throw;
        }
        spillables.ReturnFromTier(*lower, std::chrono::steady_clock::now() - begin);
        LeaveTier();
        return true;
      }
      LeaveTier();
    }
    return false;
  }
  // What has it alone, as it is here, away, or in the next tier, becomes this one's.
  void LeaveTier() {
    const std::shared_ptr<Item> left = std::move(lower);
    spillables.LeaveTier(*left);
    kept = std::move(left->kept);
    if (kept.has_value()) kept.set_device(device);
    lower = std::move(left->lower);
  }
  // False: it is in the file alone, as what has gone on from its tiers to it is from here on.
  bool WaitsInTier() {
    while (lower != nullptr) {
      if (!lower->state.BeginComing()) return true;  // it is here, or going
      LeaveTier();
    }
    return false;
  }

  bool HasCome() const override { return kept.has_come() || lower != nullptr; }
  bool IsWritten() const override {
    return compute != nullptr ||
           (kept.has_value() && kept_of == array.buffer()->id && version == Version());
  }
  void BeginToWrite() override {
    kept = SpilledArray();  // as above
    writing.emplace(spillables.file(), array);
  }
  bool HasWritten() const override { return writing->is_done(); }
  bool EndWrite() noexcept override {
    try {
      if (writing->is_done()) {
        TakeWritten();
        return true;
      }
    } catch (...) {
    }
    writing.reset();
    return false;
  }
  // Waits. Nobody has had a pin since it was begun.
  void TakeWritten() {
    const absl::Cleanup ends = [this] { writing.reset(); };
    kept = writing->Finish();
    NoteKept();
  }
  const char* WhyItStays() const override {
    if (!array.buffer()) return "another array was assigned to it";
    const Buffer& buffer = *array.buffer().get();
    if (!buffer.IsAlive()) return "closed";
    // Through a pin: of another buffer, but else as it was, it may be.
    if (array.shape() != shape || array.dtype() != dtype || array.device() != device ||
        !array.is_dense() || buffer.attached || buffer.imported ||
        static_cast<int64_t>(buffer.bytes) != bytes) {
      return "another array was assigned to it";
    }
    if (buffer.MayBeWrittenOutside()) return "other code has its bytes";
    if (buffer.references.load(std::memory_order_acquire) != 1) return "handles outlive a pin";
    return nullptr;
  }
  // Not where it changes from here on, or is another one.
  void NoteKept() {
    kept_of = array.buffer()->id;
    version = Version();
  }
  uint32_t Version() const { return array.buffer()->version.load(std::memory_order_relaxed); }

  Spillables& spillables;
  // By who moves it, and by who has a pin.
  NDArray array;
  std::optional<SpilledArray::Writing> writing;  // has a handle of it
  SpilledArray kept;  // may be there beside the array: what it was when it came, or was written
  std::shared_ptr<Item>
      lower;             // waits in a tier, while this is away; what the file has is its then
  uint64_t kept_of = 0;  // the buffer, and its version, when it was what is kept
  uint32_t version = 0;
  const Shape shape;
  const DType dtype;
  const std::function<NDArray()> compute;
};

thread_local constinit const SpillableArray::Item::Computing* SpillableArray::Item::computing =
    nullptr;

SpillableArray::SpillableArray(Spillables& spillables, NDArray array, std::string name)
    : SpillableArray(spillables, std::move(array), nullptr, std::move(name)) {}

SpillableArray SpillableArray::Recomputed(Spillables& spillables, std::function<NDArray()> compute,
                                          std::string name) {
  NDArray array;
  {
    const Outside outside(MemoryOwner::Current());
    array = compute();
  }
  return SpillableArray(spillables, std::move(array), std::move(compute), std::move(name));
}

SpillableArray::SpillableArray(Spillables& spillables, NDArray array,
                               std::function<NDArray()> compute, std::string name)
    : spillables_(&spillables) {
  array.CheckAlive("spillable", "array");
  if (array.NumElements() == 0) {
    ThrowInvalidArgument(absl::StrCat("spillable \"", name, "\": found ", array.shape().ToString(),
                                      ", expected elements"));
  }
  NDArray own;
  {
    const Outside outside(MemoryOwner::Current());
    own = OnTheHeap(std::move(array));
  }
  item_ = std::make_shared<Item>(spillables, std::move(own), std::move(compute), std::move(name));
  spillables.Add(item_);
}

SpillableArray& SpillableArray::operator=(SpillableArray&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  spillables_ = other.spillables_;
  item_ = std::move(other.item_);
  return *this;
}

void SpillableArray::Reset() noexcept {
  if (item_ != nullptr) spillables_->Remove(*item_);
  item_.reset();
}

SpillableArray::Item& SpillableArray::Checked() const {
  if (item_ == nullptr) ThrowFailedPrecondition("SpillableArray: there is none");
  return *item_;
}

const Shape& SpillableArray::shape() const { return Checked().shape; }
DType SpillableArray::dtype() const { return Checked().dtype; }
Device SpillableArray::device() const { return Checked().device; }
bool SpillableArray::is_here() const { return Checked().state.is_here(); }
bool SpillableArray::Spill() { return spillables_->SpillOne(Checked()); }

void SpillableArray::Prefetch() {
  Item& item = Checked();
  if (item.compute == nullptr) spillables_->Prefetch(item);
}

SpillableArray::Pinned SpillableArray::Read() const {
  Item& item = Checked();
  item.CheckNotComputing();
  spillables_->Pin(item);
  return Pinned(*spillables_, item_);
}

SpillableArray::Pinned SpillableArray::Write() {
  Pinned pinned = Read();
  pinned->MarkWritten();
  return pinned;
}

SpillableArray::Pinned& SpillableArray::Pinned::operator=(Pinned&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  spillables_ = other.spillables_;
  item_ = std::move(other.item_);
  return *this;
}

NDArray& SpillableArray::Pinned::operator*() const { return item_->array; }

void SpillableArray::Pinned::Reset() noexcept {
  if (item_ != nullptr) spillables_->Unpin(*item_);
  item_.reset();
}

}  // namespace tidepool
