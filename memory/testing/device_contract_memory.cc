// Ranges, blocks and refusals.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

bool IsAligned(const std::byte* at, size_t alignment) {
  return reinterpret_cast<uintptr_t>(at) % alignment == 0;
}

using Extent = std::pair<const std::byte*, size_t>;

void ExpectApart(DeviceCheck& check, std::vector<Extent> extents, const std::string& what) {
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    check.Expect(extents[i - 1].first + extents[i - 1].second <= extents[i].first,
                 absl::StrCat("two ", what, " overlap, of ", extents[i - 1].second, " and ",
                              extents[i].second, " bytes"));
  }
}

void ExpectNoBlock(DeviceCheck& check, size_t bytes, const std::string& what) {
  std::byte* const data = check.device.Allocate(bytes, check.traits.alignment);
  if (!check.Expect(data == nullptr, absl::StrCat(what, " was granted")))
    check.device.Release(data, bytes);
}

void ExpectNoRange(DeviceCheck& check, size_t bytes) {
  std::byte* const base = check.device.Reserve(bytes);
  if (!check.Expect(base == nullptr, absl::StrCat("a range of ", bytes, " bytes was granted"))) {
    check.device.Unreserve(base, bytes);
  }
}

// So often that in all more is taken than there is, where the capacity is known; else a few times.
size_t RoundsOf(const DeviceCheck& check, size_t bytes) {
  const size_t capacity = check.contract.capacity_bytes;
  return capacity > 0 ? std::min<size_t>(capacity / bytes + 4, 1000) : 20;
}

// So often that it is noticed where one in ten is not taken back.
size_t OftenOf(const DeviceCheck& check, size_t bytes) {
  const size_t capacity = check.contract.capacity_bytes;
  return capacity > 0 ? std::min<size_t>(25 * capacity / bytes + 10, 1000) : 20;
}

void CheckReleasesOfMany(DeviceCheck& check, size_t bytes) {
  constexpr size_t kBlocks = 3;
  for (size_t round = 0; round < OftenOf(check, bytes); ++round) {
    std::vector<DeviceProvider::Block> many;
    while (many.size() < kBlocks) {
      std::byte* const data = check.device.Allocate(bytes, check.traits.alignment);
      if (data == nullptr) break;
      many.push_back({data, bytes});
    }
    check.device.ReleaseMany(many.data(), static_cast<int>(many.size()));
    if (!check.Expect(many.size() == kBlocks,
                      absl::StrCat("a block of ", bytes, " bytes was refused after ", round,
                                   " times ReleaseMany of ", kBlocks))) {
      return;
    }
  }
}

// What was decommitted serves others, whose addresses are elsewhere.
void CheckDecommits(DeviceCheck& check, size_t bytes) {
  std::vector<std::unique_ptr<TestRange>> ranges;
  for (size_t round = 0; round < OftenOf(check, bytes); ++round) {
    ranges.push_back(std::make_unique<TestRange>(check.device, 2 * bytes));
    std::byte* const base = ranges.back()->base();
    if (!check.Expect(check.device.Commit(base, 2 * bytes, false),
                      absl::StrCat("a commit of ", 2 * bytes, " bytes was refused after ", round,
                                   " times as much was decommitted in other ranges"))) {
      return;
    }
    if (!check.device.Decommit(base + bytes, bytes) || !check.device.Decommit(base, bytes)) {
      ranges.pop_back();  // refused: then it goes with its range
    }
  }
}

}  // namespace

void CheckDescription(DeviceCheck& check) {
  const MemoryTraits& traits = check.traits;
  check.Expect(!check.device.name().empty(), "name() is empty");
  check.Expect(check.device.device() == check.contract.device,
               absl::StrCat("device() is ", DeviceName(check.device.device()), ", expected ",
                            DeviceName(check.contract.device)));
  check.Expect(std::has_single_bit(traits.alignment) && traits.alignment <= kMaxAlignment,
               absl::StrCat("traits().alignment is ", traits.alignment,
                            ", expected a power of two up to ", kMaxAlignment));
  check.Expect(
      std::has_single_bit(traits.granularity),
      absl::StrCat("traits().granularity is ", traits.granularity, ", expected a power of two"));
  check.Expect(traits.large_granularity == 0 || (std::has_single_bit(traits.large_granularity) &&
                                                 traits.large_granularity >= traits.granularity),
               absl::StrCat("traits().large_granularity is ", traits.large_granularity,
                            ", expected 0 or a power of two from the granularity on"));
  check.Expect(traits.reserve_bytes > 0,
               "traits().reserve_bytes is 0: growing pages would move each time");
  check.Expect(FindDeviceProvider(check.contract.device) == &check.device,
               "the provider is found once only");
  for (int i = 0; i < 30; ++i) {
    const MemoryTraits again = check.device.traits();
    check.Expect(again.alignment == traits.alignment && again.granularity == traits.granularity &&
                     again.large_granularity == traits.large_granularity &&
                     again.reserve_bytes == traits.reserve_bytes &&
                     again.host_readable == traits.host_readable,
                 "traits() are others each time");
    check.Expect(check.device.device() == check.contract.device,
                 "device() is another one each time");
  }
  try {
    check.device.ThrowIfLost("device contract");
  } catch (const Error& error) {
    check.Expect(false,
                 absl::StrCat("ThrowIfLost() throws of a device that works: ", error.what()));
  }
}

void CheckRanges(DeviceCheck& check) {
  const size_t unit =
      std::max({kMaxAlignment, check.traits.granularity, check.traits.large_granularity});
  std::vector<std::unique_ptr<TestRange>> ranges;
  std::vector<Extent> extents;
  for (size_t granules : {1, 2, 3, 7, 64, 1, 5, 16}) {
    ranges.push_back(
        std::make_unique<TestRange>(check.device, granules * check.traits.granularity));
    const TestRange& range = *ranges.back();
    extents.emplace_back(range.base(), range.bytes());
    check.Expect(IsAligned(range.base(), unit),
                 absl::StrCat("a range of ", range.bytes(), " bytes is not aligned to ", unit));
    if (granules == 7) {  // the next ones may get its place
      ranges.pop_back();
      extents.pop_back();
    }
  }
  ExpectApart(check, extents, "ranges");
  // As much as a growing range should have.
  TestRange large(check.device, check.traits.reserve_bytes);
  check.Expect(IsAligned(large.base(), unit),
               absl::StrCat("the largest range is not aligned to ", unit));
}

void CheckCommits(DeviceCheck& check) {
  const size_t granule = check.traits.granularity;
  constexpr size_t kGranules = 8;
  TestRange range(check.device, kGranules * granule);
  Bytes expected;
  for (const size_t granules : {1, 3, 4}) {  // from the front; what is there stays
    const Bytes piece = check.NewPattern(granules * granule);
    check.Write(range.Commit(expected.size(), piece.size()), piece);
    expected.insert(expected.end(), piece.begin(), piece.end());
    check.device.Prefault(range.base(), expected.size());
    check.ExpectOnDevice(range.base(), expected, "after a further commit");
  }
  // The end, the middle, the front, and all of it: others stay, and so does what is refused.
  for (const auto& [first, count] : {std::pair<size_t, size_t>{6, 2}, {3, 2}, {0, 1}, {0, 8}}) {
    const size_t begin = first * granule, bytes = count * granule;
    if (check.device.Decommit(range.base() + begin, bytes)) {
      const auto rest = [&](size_t from, size_t to) {
        if (from == to) return;
        check.ExpectOnDevice(range.base() + from,
                             Bytes(expected.begin() + from, expected.begin() + to),
                             "beside a decommit");
      };
      rest(0, begin);
      rest(begin + bytes, expected.size());
      const Bytes piece = check.NewPattern(bytes);
      check.Write(range.Commit(begin, bytes), piece);
      std::copy(piece.begin(), piece.end(), expected.begin() + begin);
    }
    check.ExpectOnDevice(range.base(), expected, "after a decommit");
  }
  // In any order, often: a device may lose bytes now and then.
  constexpr size_t kFew = 5;
  TestRange often(check.device, kFew * granule);
  Bytes model = check.NewPattern(kFew * granule);
  check.Write(often.Commit(0, model.size()), model);
  for (int round = 0; round < 60; ++round) {
    const size_t first = check.Below(kFew), count = 1 + check.Below(kFew - first);
    const size_t begin = first * granule, bytes = count * granule;
    if (round % 3 == 0) {
      check.device.Prefault(often.base() + begin, bytes);
    } else if (check.device.Decommit(often.base() + begin, bytes)) {
      const Bytes piece = check.NewPattern(bytes);
      check.Write(often.Commit(begin, bytes, round % 2 == 0), piece);
      std::copy(piece.begin(), piece.end(), model.begin() + static_cast<ptrdiff_t>(begin));
    }
    if (!check.ExpectOnDevice(
            often.base(), model,
            absl::StrCat(round % 3 == 0 ? "Prefault" : "Decommit and Commit", " of ", count,
                         " granules from number ", first, ", round ", round))) {
      return;
    }
  }
  if (const size_t large = check.traits.large_granularity; large > 0) {
    TestRange pages(check.device, 2 * large);
    const Bytes piece = check.NewPattern(2 * large);
    check.Write(pages.Commit(0, large, true), Bytes(piece.begin(), piece.begin() + large));
    check.Write(pages.Commit(large, large, true), Bytes(piece.begin() + large, piece.end()));
    check.ExpectOnDevice(pages.base(), piece, "in large pages");
  }
}

void CheckBlocks(DeviceCheck& check) {
  struct Written {
    std::unique_ptr<TestBlock> block;
    Bytes bytes;
  };
  std::vector<Written> blocks;
  const auto add = [&](size_t bytes, size_t alignment) {
    Written written{std::make_unique<TestBlock>(check.device, bytes, alignment),
                    check.NewPattern(bytes)};
    check.Expect(IsAligned(written.block->data(), alignment),
                 absl::StrCat("a block of ", bytes, " bytes is not aligned to ", alignment));
    check.Write(written.block->data(), written.bytes);
    blocks.push_back(std::move(written));
  };
  for (size_t alignment = check.traits.alignment; alignment <= kMaxAlignment; alignment *= 4)
    add(100, alignment);
  for (const size_t bytes : {1, 2, 63, 64, 65, 512, 4095, 4096, 65537})
    add(bytes, check.traits.alignment);
  add(kMiB + 3, kMaxAlignment);
  for (int i = 0; i < 60; ++i) {
    if (blocks.size() > 10 && i % 2 == 0) {
      std::swap(blocks[check.Below(blocks.size())], blocks.back());
      check.ExpectOnDevice(blocks.back().block->data(), blocks.back().bytes,
                           "a block beside others");
      blocks.pop_back();
    } else {
      add(1 + check.Below(i % 5 == 0 ? 100 * kKiB : 2 * kKiB), check.traits.alignment);
    }
  }
  std::vector<Extent> extents;
  TestRange range(check.device, std::max(check.Granules(4 * kMiB), check.traits.reserve_bytes));
  extents.emplace_back(range.base(), range.bytes());
  for (const Written& written : blocks) {
    check.ExpectOnDevice(written.block->data(), written.bytes, "a block beside others");
    extents.emplace_back(written.block->data(), written.block->bytes());
  }
  ExpectApart(check, extents, "blocks, or one and a range,");
  check.device.ReleaseMany(nullptr, 0);
  // The other way to give some back.
  std::vector<DeviceProvider::Block> many;
  for (const size_t bytes : {10, 20, 5000}) {
    std::byte* const data = check.device.Allocate(bytes, check.traits.alignment);
    if (check.Expect(data != nullptr, absl::StrCat("a block of ", bytes, " bytes was refused"))) {
      many.push_back({data, bytes});
    }
  }
  check.device.ReleaseMany(many.data(), static_cast<int>(many.size()));
}

void CheckTails(DeviceCheck& check) {
  if (!check.traits.host_readable) return;
  volatile unsigned sum = 0;
  for (const size_t bytes : {1, 8, 63, 64, 500, 4096, 70000, 1 << 20}) {
    TestBlock block(check.device, bytes);
    check.device.Fill(block.data(), std::byte{1}, bytes);
    const volatile std::byte* const end = block.data() + bytes;
    for (size_t i = 0; i < kReadableTailBytes; ++i) sum = sum + static_cast<unsigned>(end[i]);
    block.data()[bytes - 1] = std::byte{2};
    check.Expect(block.data()[bytes - 1] == std::byte{2}, "the host's write is lost");
  }
}

void CheckRefusals(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  TestBlock block(device, 10000);
  const Bytes kept = check.NewPattern(10000);
  check.Write(block.data(), kept);
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2 + 1}) ExpectNoRange(check, bytes);
  // The tail of the second leaves the address space.
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 63}) {
    ExpectNoBlock(check, bytes, absl::StrCat("a block of ", bytes, " bytes"));
  }
  if (const size_t capacity = check.contract.capacity_bytes; capacity > 0) {
    ExpectNoBlock(check, capacity + 1, "a block larger than the capacity");
    // Filled up in pieces: whatever is refused, the next smaller piece and all that was there are
    // well.
    TestRange range(device, check.Granules(2 * capacity));
    size_t committed = 0;
    Bytes first;
    size_t piece = check.Granules(std::max(capacity / 4, check.traits.granularity));
    while (committed + piece <= range.bytes()) {
      if (device.Commit(range.base() + committed, piece, false)) {
        if (committed == 0)
          check.Write(range.base(), first = check.NewPattern(check.traits.granularity));
        committed += piece;
      } else if (piece > check.traits.granularity) {
        piece = check.Granules(piece / 2);
      } else {
        break;
      }
    }
    if (check.Expect(committed <= capacity,
                     absl::StrCat(committed, " bytes were committed, more than the capacity of ",
                                  capacity)) &&
        check.Expect(committed > 0, "nothing could be committed")) {
      ExpectNoBlock(check, kMiB + check.traits.granularity, "a block that there is no room for");
      check.ExpectOnDevice(range.base(), first, "after refusals");
      const size_t last = committed - check.traits.granularity;
      if (device.Decommit(range.base() + last, check.traits.granularity)) {
        check.Expect(device.Commit(range.base() + last, check.traits.granularity, false),
                     "what was decommitted was refused again");
      }
    }
    range.Unreserve();
    TestBlock again(device, capacity / 2);
  }
  check.ExpectOnDevice(block.data(), kept, "a block beside refusals");
}

void CheckGivingBack(DeviceCheck& check) {
  // With a capacity, more in all than there is: what was not taken back would be missing.
  const size_t capacity = check.contract.capacity_bytes;
  const size_t bytes = check.Granules(capacity > 0 ? std::min(capacity / 3, 64 * kMiB) : kMiB);
  for (size_t round = 0; round < RoundsOf(check, bytes); ++round) {
    TestRange range(check.device, 4 * bytes);
    range.Commit(0, bytes / 2 / check.traits.granularity * check.traits.granularity +
                        check.traits.granularity);
    TestBlock block(check.device, bytes);
    check.device.Fill(block.data() + bytes - 1, std::byte{1}, 1);
  }
  // A piece that each release forgets is missing in the end.
  const size_t granule = check.traits.granularity;
  for (size_t round = 0; round < std::min<size_t>(capacity / granule + 10, 10000); ++round) {
    TestBlock block(check.device, granule);
  }
  // Of large ones one in ten that is forgotten.
  const size_t piece =
      check.Granules(capacity > 0 ? std::clamp(capacity / 16, granule, 64 * kMiB) : kMiB);
  for (size_t round = 0; round < OftenOf(check, piece); ++round) {
    TestBlock block(check.device, piece);
    TestRange range(check.device, piece);
    range.Commit(0, piece);
  }
  CheckReleasesOfMany(check, piece);
  CheckDecommits(check, piece);
}

}  // namespace tidepool
