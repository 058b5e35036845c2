#include "tidepool/memory/workspace/plan_file.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/planning/plan_validator.h"

namespace tidepool {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr absl::string_view kMagic("tidepool plans\n\0", 16);
constexpr size_t kRequestBytes = 20;
constexpr size_t kChecksumBytes = 8;
// Far more than the plans that are kept (plan_set.h).
constexpr uint64_t kMostPlanFileBytes = uint64_t{1} << 28;

uint64_t Checksum(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads the front; the caller has looked at the length.
template <typename T>
T Take(absl::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return value;
}

// Nothing, with `problem` set, if the bytes are no plan.
std::optional<PlacedRequests> ParsePlan(absl::string_view& bytes, size_t alignment,
                                        std::string& problem) {
  if (bytes.size() < 8) {
    problem = absl::StrCat(bytes.size(), " bytes are left, expected the 8 of its counts");
    return std::nullopt;
  }
  const uint32_t count = Take<uint32_t>(bytes);
  const uint32_t num_pins = Take<uint32_t>(bytes);
  const uint64_t needed = count * uint64_t{kRequestBytes} + num_pins * uint64_t{4};
  if (count == 0 || num_pins > count || needed > bytes.size()) {
    problem = absl::StrCat(count, " requests and ", num_pins, " pins in ", bytes.size(), " bytes");
    return std::nullopt;
  }
  PlacedRequests cycle;
  Placement placement;
  constexpr uint64_t kMost = uint64_t{1} << 60;
  uint64_t requested = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t size = Take<uint64_t>(bytes);
    const uint64_t offset = Take<uint64_t>(bytes);
    const uint32_t upper = Take<uint32_t>(bytes);
    if (size == 0 || size % alignment != 0 || size > kMost || offset > kMost || upper <= i ||
        upper > count || (requested += size) > kMost) {
      problem = absl::StrCat("request ", i, " of ", size, " bytes at ", offset, " until ", upper);
      return std::nullopt;
    }
    cycle.requests.push_back({i, upper, static_cast<int64_t>(size)});
    placement.offsets.push_back(static_cast<int64_t>(offset));
    placement.peak = std::max(placement.peak, static_cast<int64_t>(offset + size));
  }
  for (uint32_t k = 0; k < num_pins; ++k) {
    const uint32_t pin = Take<uint32_t>(bytes);
    if (pin >= count) {
      problem = absl::StrCat("pin of request ", pin, " of ", count);
      return std::nullopt;
    }
    cycle.pins.push_back({pin, placement.offsets[pin]});
  }
  const auto violation =
      FindPlacementViolation(cycle.requests, static_cast<int64_t>(alignment), placement);
  if (violation.has_value()) {
    problem = *violation;
    return std::nullopt;
  }
  cycle.offsets = std::move(placement.offsets);
  cycle.peak_bytes = static_cast<size_t>(placement.peak);
  cycle.lower_bound_bytes =
      static_cast<size_t>(LiveLowerBound(cycle.requests, static_cast<int64_t>(alignment)));
  cycle.requested_bytes = requested;
  return cycle;
}

}  // namespace

std::string FormatPlans(absl::Span<const std::shared_ptr<LearnedCycle>> cycles, size_t alignment) {
  std::string out(kMagic);
  Put(out, kPlanFileVersion);
  Put(out, static_cast<uint32_t>(cycles.size()));
  Put(out, static_cast<uint64_t>(alignment));
  for (const auto& cycle : cycles) {
    const CyclePlan& plan = *cycle->plan;
    Put(out, static_cast<uint32_t>(plan.requests.size()));
    Put(out, static_cast<uint32_t>(plan.pins.size()));
    for (size_t i = 0; i < plan.requests.size(); ++i) {
      Put(out, static_cast<uint64_t>(plan.requests[i].size));
      Put(out, static_cast<uint64_t>(plan.layout.offset(static_cast<uint32_t>(i))));
      Put(out, static_cast<uint32_t>(plan.requests[i].upper));
    }
    for (const PinnedBuffer& pin : plan.pins) Put(out, static_cast<uint32_t>(pin.buffer));
  }
  Put(out, Checksum(out));
  return out;
}

ParsedPlans ParsePlans(absl::string_view bytes, size_t alignment) {
  ParsedPlans parsed;
  auto ignore = [&](auto&&... text) {
    parsed.cycles.clear();
    parsed.ignored = absl::StrCat(text...);
    return std::move(parsed);
  };
  constexpr size_t kHeaderBytes = 32;
  if (bytes.size() < kHeaderBytes + kChecksumBytes) {
    return ignore("found ", bytes.size(), " bytes, expected at least ",
                  kHeaderBytes + kChecksumBytes);
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) return ignore("not a file of plans: wrong magic");
  absl::string_view rest =
      bytes.substr(kMagic.size(), bytes.size() - kMagic.size() - kChecksumBytes);
  const uint32_t version = Take<uint32_t>(rest);
  if (version != kPlanFileVersion) {
    return ignore("found version ", version, ", expected ", kPlanFileVersion);
  }
  absl::string_view end = bytes.substr(bytes.size() - kChecksumBytes);
  if (Take<uint64_t>(end) != Checksum(bytes.substr(0, bytes.size() - kChecksumBytes))) {
    return ignore("the checksum differs: the file is damaged or cut short");
  }
  const uint32_t count = Take<uint32_t>(rest);
  const uint64_t found_alignment = Take<uint64_t>(rest);
  if (found_alignment != alignment) {
    return ignore("found alignment ", found_alignment, ", expected ", alignment);
  }
  for (uint32_t i = 0; i < count; ++i) {
    std::string problem;
    std::optional<PlacedRequests> cycle = ParsePlan(rest, alignment, problem);
    if (!cycle.has_value()) return ignore("plan ", i, " of ", count, ": ", problem);
    parsed.cycles.push_back(*std::move(cycle));
  }
  if (!rest.empty()) return ignore(rest.size(), " bytes behind the last plan");
  return parsed;
}

size_t MostBelievedPlanBytes(const MemoryOwner& owner, Device device) {
  const MemoryBudget& budget = MemoryBudget::Global();
  int64_t most = std::min(budget.process().limit_bytes, budget.Of(device).limit_bytes);
  for (const MemoryOwner* node = &owner; node != nullptr; node = node->parent()) {
    most = std::min(most, budget.Of(*node, device).limit_bytes);
  }
  if (device == Host()) most = std::min(most, MachineMemoryBytes() / kBelievedShareOfMemory);
  return static_cast<size_t>(std::max<int64_t>(most, 0));
}

ParsedPlans ReadPlans(const std::string& path, size_t alignment) {
  ParsedPlans parsed;
  std::string bytes;
  try {
    FileReader file(path);
    if (file.size() > kMostPlanFileBytes) {
      parsed.ignored = absl::StrCat(file.name(), ": found a file of ", file.size(),
                                    " bytes, expected at most ", kMostPlanFileBytes);
      return parsed;
    }
    bytes.resize(file.size());
    file.ReadExactly(absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()),
                     "plans");
  } catch (const Error& error) {
    parsed.ignored = error.message();
    return parsed;
  }
  parsed = ParsePlans(bytes, alignment);
  if (!parsed.ignored.empty()) parsed.ignored = absl::StrCat(OneLine(path), ": ", parsed.ignored);
  return parsed;
}

}  // namespace tidepool
