#include "tidepool/nn/budget/gradients_aside.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/unbudgeted_owner.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {
namespace {

struct Mapping {
  std::byte* begin;
  size_t bytes;
};

// Addresses of so many bytes that all show the same few pages.
Mapping MapRepeated(size_t bytes) {
  constexpr size_t kLeast = 64 << 10, kMostParts = 1024;
  const size_t part = std::max(kLeast, std::bit_ceil(bytes / kMostParts));
  const Mapping mapping{nullptr, (bytes + part - 1) / part * part};
  // Where there is no such file each page stands for itself.
  void* const begin = mmap(nullptr, mapping.bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    throw OutOfMemoryError(
        absl::StrCat("step budget: no addresses for ", bytes, " bytes of gradients"), "");
  }
  auto* const first = static_cast<std::byte*>(begin);
  const int file = memfd_create("tidepool gradients aside", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(part)) == 0) {
    for (size_t at = 0; at < mapping.bytes; at += part) {
      if (mmap(first + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED)
        break;
    }
  }
  if (file >= 0) close(file);
  return {first, mapping.bytes};
}

void Unmap(void* context) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(context));
  munmap(mapping->begin, mapping->bytes);
}

NDArray ArrayAside(const NDArray& like) {
  const HandlesOwnScope handles;
  const MemoryOwnerScope beside(OwnerBesideBudgets());
  const size_t bytes = static_cast<size_t>(like.NumElements()) * DTypeBytes(like.dtype());
  auto mapping = std::make_unique<Mapping>(MapRepeated(bytes));
  Buffer* buffer = nullptr;
  try {
    buffer = NewImportedBuffer(mapping->begin, bytes, Unmap, mapping.get());
  } catch (...) {
    Unmap(mapping.release());
    throw;
  }
  (void)mapping.release();
  return NDArray(BufferHandle(buffer), like.shape(), like.dtype());
}

}  // namespace

GradientsAside::GradientsAside(Network& network) : network_(network) {
  const NDArray& own = network.gradients_;
  if (!own.is_defined() || own.NumElements() == 0) return;
  if (own.device() != Host()) {
    // A device's pages cannot stand for others.
    const HandlesOwnScope handles;
    const MemoryOwnerScope beside(OwnerBesideBudgets());
    values_ = own.CopyTo(Place::Heap());
    version_ = own.buffer()->version.load(std::memory_order_relaxed);
  } else {
    const NDArray aside = ArrayAside(own);
    for (size_t k = 0; k < network.gradient_views_.size(); ++k) {
      const int64_t begin = network.parameter_offsets_[k];
      const Shape& shape = network.gradient_views_[k].shape();
      views_.push_back(aside.Slice(0, begin, begin + shape.NumElements()).Reshape(shape));
    }
    gradients_ = std::exchange(network.gradients_, aside);
    std::swap(network.gradient_views_, views_);
  }
  listener_ = std::exchange(network.gradient_listener_, nullptr);
  is_aside_ = true;
}

GradientsAside::~GradientsAside() {
  try {
    Restore();
  } catch (const Error&) {
    // Another error is on its way.
  }
}

void GradientsAside::Restore() {
  if (!std::exchange(is_aside_, false)) return;
  network_.gradient_listener_ = listener_;
  if (!values_.is_defined()) {
    network_.gradients_ = std::move(gradients_);
    std::swap(network_.gradient_views_, views_);
    return;
  }
  const absl::Cleanup version = [this] {
    // Trainers tell by the version whether somebody has computed gradients. What knew those in between was of steps that are over.
    network_.gradients_.buffer()->version.store(version_, std::memory_order_relaxed);
  };
  constexpr int kTries = 2;
  for (int i = 0; i < kTries; ++i) {
    try {
      return CopyInto(values_, network_.gradients_);
    } catch (Error& error) {
      if (i + 1 < kTries) continue;
      error.AddContext(absl::StrCat("step budget: gradients of network [", network_.name(),
                                    "], which have to be computed again,"));
      throw;
    }
  }
}

}  // namespace tidepool::nn
