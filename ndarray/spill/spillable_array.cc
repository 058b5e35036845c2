#include "tidepool/ndarray/spill/spillable_array.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
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

  int64_t LetGo(SpillState<StdSync>::Found found) override {
    if (found == SpillState<StdSync>::Found::kComing) {
      kept.DropPrefetch();
      return 0;
    }
    int64_t written = 0;
    if (found == SpillState<StdSync>::Found::kGoing) {
      try {
        TakeWritten();
        written = bytes;
      } catch (const Error&) {
        // It is written anew, and whoever asked is told if that fails as well.
      }
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
      array = kept.Restore();
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
    version = Version();
  }
  void BeginToBring() override {
    const Outside outside(owner);
    kept.Prefetch();
  }
  bool HasCome() const override { return kept.has_come(); }
  bool IsWritten() const override {
    return compute != nullptr || (kept.has_value() && version == Version());
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
    version = Version();
  }
  const char* WhyItStays() const override {
    const Buffer& buffer = *array.buffer().get();
    if (!buffer.IsAlive()) return "closed";
    if (buffer.MayBeWrittenOutside()) return "other code has its bytes";
    if (buffer.references.load(std::memory_order_acquire) != 1) return "handles outlive a pin";
    return nullptr;
  }
  uint32_t Version() const { return array.buffer()->version.load(std::memory_order_relaxed); }

  Spillables& spillables;
  // By who moves it, and by who has a pin.
  NDArray array;
  std::optional<SpilledArray::Writing> writing;  // has a handle of it
  SpilledArray kept;     // may be there beside the array: what it was when it came, or was written
  uint32_t version = 0;  // of the array, when it was what is kept
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
