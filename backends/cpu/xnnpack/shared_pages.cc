#include "tidepool/backends/cpu/xnnpack/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/ndarray/frozen/engine_fork.h"

namespace tidepool::cpu {
namespace {

// Linux 5.14; older ones refuse it, and pages come when they are first read.
constexpr int kPopulateForReading = 22;

MemoryCharge Charged(size_t bytes) {
  const MemoryOwnerScope owner(MemoryOwner::Process().Child("xnnpack"));
  return MemoryCharge(MemoryKind::kExternal, static_cast<int64_t>(bytes));
}

// A write beyond it ends the process.
bool MayBeAsLong(off_t bytes) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         (limit.rlim_cur == RLIM_INFINITY || static_cast<rlim_t>(bytes) <= limit.rlim_cur);
}

bool Write(int file, off_t at, const std::byte* from, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = pwrite(file, from, bytes, at);
    if (written <= 0) return false;
    at += written;
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool Read(int file, off_t at, std::byte* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t read = pread(file, to, bytes, at);
    if (read <= 0) return false;
    at += read;
    to += read;
    bytes -= static_cast<size_t>(read);
  }
  return true;
}

}  // namespace

size_t SharedPages::InPages(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

SharedPages& SharedPages::Global() {
  static SharedPages* const pages = [] {
    constexpr auto kAfter = [] {
      SharedPages& global = Global();
      if (global.file_ != nullptr) global.file_->is_of_two = true;
      global.file_.reset();
      global.mutex_.unlock();
    };
    static constinit const EngineForkHandlers handlers{[] { Global().mutex_.lock(); }, kAfter,
                                                       kAfter};
    HandleEngineFork(EngineLock::kPages, &handlers);
    return new SharedPages;
  }();
  return *pages;
}

SharedPages::File::~File() { close(file); }

std::byte* SharedPages::Allocate(size_t bytes) noexcept {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t whole = InPages(bytes);
  try {
    Block block{whole, Charged(whole), {}, false};
    void* const made =
        mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      blocks_.emplace(static_cast<std::byte*>(made), std::move(block));
    } catch (const std::bad_alloc&) {
      munmap(made, whole);
      return nullptr;
    }
    return static_cast<std::byte*>(made);
  } catch (const std::exception&) {
    return nullptr;  // a budget has refused
  }
}

void SharedPages::Release(std::byte* block) noexcept {
  MemoryCharge charge;  // goes when the lock has gone: budgets tell of their levels
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(block);
  munmap(block, found->second.bytes);
  charge =
      found->second.is_shared ? DropLocked(found->second.image) : std::move(found->second.charge);
  blocks_.erase(found);
}

size_t SharedPages::Share(std::byte* at) {
  size_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = blocks_.at(at).bytes;
  }
  const uint64_t hash = std::hash<std::string_view>()({reinterpret_cast<const char*>(at), bytes});
  MemoryCharge charge;  // as in Release()
  std::unique_lock<std::mutex> lock(mutex_);
  Block& block = blocks_.at(at);
  if (block.is_shared || !HasFileLocked()) return 0;
  const auto [first, last] = images_.equal_range(hash);
  auto image = std::find_if(first, last, [&](const auto& each) {
    return each.second.bytes == bytes && HasBytesLocked(each.second, at);
  });
  if (image == last) image = AddLocked(hash, at, block);
  if (image == images_.end()) return 0;
  ++image->second.blocks;
  block.image = image;
  block.is_shared = true;
  charge = std::move(block.charge);
  const off_t begin = image->second.begin;
  const int file = image->second.file->file;
  constexpr int kReadWrite = PROT_READ | PROT_WRITE;
  if (mmap(at, bytes, kReadWrite, MAP_PRIVATE | MAP_FIXED, file, begin) != MAP_FAILED) {
    madvise(at, bytes, kPopulateForReading);
    return bytes;
  }
  // The range may be no memory any more. Its bytes are in the file.
  if (mmap(at, bytes, kReadWrite, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED &&
      Read(file, begin, at, bytes)) {
    return bytes;  // shared by name alone: its own pages are not on the ledger
  }
  lock.unlock();
  ThrowOutOfMemory({Host(), nullptr, static_cast<int64_t>(bytes), "packed weights"}, "XNNPACK",
                   "pages of packed weights could not be mapped",
                   MemoryTracker::Global().Snapshot().ToString());
}

bool SharedPages::HasFileLocked() {
  if (file_ != nullptr || has_no_files_) return file_ != nullptr;
  const int file = memfd_create("tidepool packed weights", MFD_CLOEXEC);
  has_no_files_ = file < 0;
  if (has_no_files_) return false;
  try {
    file_ = std::make_shared<File>(file);
  } catch (const std::bad_alloc&) {
    close(file);
  }
  return file_ != nullptr;
}

off_t SharedPages::FreeRangeLocked(off_t bytes) const {
  std::vector<std::pair<off_t, off_t>> taken;
  for (const auto& [hash, image] : images_) {
    if (image.file == file_)
      taken.emplace_back(image.begin, image.begin + static_cast<off_t>(image.bytes));
  }
  std::sort(taken.begin(), taken.end());
  off_t at = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - at >= bytes) break;
    at = end;
  }
  return at;
}

bool SharedPages::HasBytesLocked(const Image& image, const std::byte* block) const {
  std::array<std::byte, 1 << 14> part;
  for (size_t at = 0; at < image.bytes; at += part.size()) {
    const size_t bytes = std::min(part.size(), image.bytes - at);
    if (!Read(image.file->file, image.begin + static_cast<off_t>(at), part.data(), bytes))
      return false;
    if (std::memcmp(part.data(), block + at, bytes) != 0) return false;
  }
  return true;
}

// Of no block yet, with the charge of this one. The end: it is not to be had.
SharedPages::Images::iterator SharedPages::AddLocked(uint64_t hash, const std::byte* at,
                                                     Block& block) {
  const auto bytes = static_cast<off_t>(block.bytes);
  try {
    const off_t begin = FreeRangeLocked(bytes), end = begin + bytes;
    if (!MayBeAsLong(end)) return images_.end();
    const auto image = images_.emplace(hash, Image{block.bytes, file_, begin, 0, MemoryCharge()});
    const bool is_long = end <= file_->size || ftruncate(file_->file, end) == 0;
    if (is_long) file_->size = std::max(file_->size, end);
    if (is_long && Write(file_->file, begin, at, block.bytes)) {
      image->second.charge = std::move(block.charge);
      return image;
    }
    image->second.blocks = 1;
    DropLocked(image);
  } catch (const std::bad_alloc&) {
  }
  return images_.end();
}

MemoryCharge SharedPages::DropLocked(Images::iterator image) noexcept {
  if (--image->second.blocks > 0) return {};
  if (!image->second.file->is_of_two) {
    fallocate(image->second.file->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              image->second.begin, static_cast<off_t>(image->second.bytes));
  }
  MemoryCharge charge = std::move(image->second.charge);
  images_.erase(image);
  return charge;
}

int64_t SharedPages::owned_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [at, block] : blocks_) bytes += block.charge.bytes();
  for (const auto& [hash, image] : images_) bytes += image.charge.bytes();
  return bytes;
}

size_t SharedPages::images() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return images_.size();
}

}  // namespace tidepool::cpu
