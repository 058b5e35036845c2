#include "tidepool/memory/profile/snapshot_entries.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/profile/pickle_reader.h"
#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {
namespace {

using Value = Pickle::Value;

constexpr size_t kMostKeys = 64;    // of a dictionary that is looked into
constexpr size_t kMostFrames = 12;  // of a call stack
constexpr size_t kMostFrameBytes = 100;
constexpr size_t kMostSiteBytes = size_t{4} << 20;  // of all together
constexpr size_t kMostDevices = 256;
constexpr int64_t kMostBytes = int64_t{1} << 47;  // of an address or a size

class Reader {
 public:
  Reader(const Pickle& pickle, size_t bytes, std::string what)
      : pickle_(pickle), most_steps_(bytes), what_(std::move(what)) {}

  SnapshotEntries Read() {
    const Value root = pickle_.root();
    CheckKeys(root, "the snapshot");
    const Value traces = root.At("device_traces"), segments = root.At("segments");
    if (!traces.is(Pickle::Type::kList) && !segments.is(Pickle::Type::kList)) {
      ThrowDataLoss(absl::StrCat(
          what_,
          ": found neither device_traces nor segments, expected a snapshot of torch.cuda.memory"));
    }
    if (traces.is(Pickle::Type::kList)) {
      if (traces.size() > kMostDevices)
        ThrowDataLoss(absl::StrCat(what_, ": traces of ", traces.size(),
                                   " devices, expected at most ", kMostDevices));
      FindOrigin(traces);
      uint32_t device = 0;
      for (const Value trace : traces) ReadTrace(device++, trace);
    }
    if (segments.is(Pickle::Type::kList)) {
      size_t number = 0;
      for (const Value segment : segments) ReadSegment(segment, number++);
    }
    for (auto& [number, device] : devices_) {
      entries_.devices.emplace(number, std::move(static_cast<SnapshotDevice&>(device)));
    }
    entries_.duration = std::max<int64_t>(last_time_, 1000);
    return std::move(entries_);
  }

 private:
  using Allocation = SnapshotAllocation;
  struct DeviceState : SnapshotDevice {
    std::unordered_map<int64_t, size_t> live;  // by address
  };

  // Values that several hold are met again and again; so much work is more than a snapshot is.
  void CountStep() {
    if (++steps_ > most_steps_)
      ThrowDataLoss(absl::StrCat(what_, ": more entries than its bytes can hold"));
  }
  void CheckKeys(Value value, const std::string& of) {
    if (!value.is(Pickle::Type::kDict))
      ThrowDataLoss(absl::StrCat(what_, ": ", of, " is no dictionary"));
    if (value.size() > kMostKeys)
      ThrowDataLoss(absl::StrCat(what_, ": ", of, " has ", value.size(), " keys, expected at most ",
                                 kMostKeys));
  }
  int64_t Number(Value value, const std::string& of) {
    const int64_t number = value.Int();
    if (number < 0 || number > kMostBytes)
      ThrowDataLoss(absl::StrCat(what_, ": ", of, " is ", number, ", expected 0 to ", kMostBytes));
    return number;
  }

  void FindOrigin(Value traces) {
    bool found = false;
    for (const Value trace : traces) {
      if (!trace.is(Pickle::Type::kList))
        ThrowDataLoss(absl::StrCat(what_, ": a device's trace is no list"));
      for (const Value entry : trace) {
        CheckKeys(entry, "an entry of the trace");
        const Value time = entry.At("time_us");
        if (!time.is(Pickle::Type::kInt)) break;
        origin_ = found ? std::min(origin_, time.Int()) : time.Int();
        found = true;
        break;
      }
    }
  }

  uint32_t Intern(const std::string& text) {
    if (text.empty()) return 0;
    const auto [found, is_new] =
        strings_.try_emplace(text, static_cast<uint32_t>(entries_.strings.size()));
    if (is_new) entries_.strings.push_back(text);
    return found->second;
  }

  static std::string Short(std::string_view text) {
    return OneLine(std::string(text.substr(0, kMostFrameBytes)));
  }

  // "forward (model.py:12) < ...", and the function of the program's own that is innermost.
  std::pair<uint32_t, std::string> SiteOf(Value frames) {
    if (!frames.is(Pickle::Type::kList) || frames.size() == 0) return {0, ""};
    const auto [known, is_new] = sites_.try_emplace(frames.number());
    if (!is_new) return known->second;
    std::string site, own, first;
    size_t count = 0;
    for (const Value frame : frames) {
      if (++count > kMostFrames) break;
      CountStep();
      CheckKeys(frame, "a frame");
      const Value name = frame.At("name"), file = frame.At("filename"), line = frame.At("line");
      const std::string function = name.is(Pickle::Type::kText) ? Short(name.Text()) : "?";
      std::string_view path = file.is(Pickle::Type::kText) ? file.Text() : std::string_view();
      const bool is_own = path.ends_with(".py") && path.find("/torch/") == std::string_view::npos;
      path = path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
      if (first.empty()) first = function;
      if (own.empty() && is_own) own = function;
      absl::StrAppend(&site, site.empty() ? "" : " < ", function);
      if (!path.empty() && path != "??") {
        absl::StrAppend(&site, " (", Short(path), ":", line.is(Pickle::Type::kInt) ? line.Int() : 0,
                        ")");
      }
    }
    site_bytes_ += site.size();
    if (site_bytes_ > kMostSiteBytes) site.clear();
    known->second = {Intern(site), own.empty() ? first : own};
    return known->second;
  }

  void ReadTrace(uint32_t number, Value trace) {
    DeviceState& device = devices_[number];
    int64_t time = 0;
    size_t index = 0;
    for (const Value entry : trace) {
      CountStep();
      ++entry_;
      const std::string of = absl::StrCat("entry ", index++, " of device ", number);
      CheckKeys(entry, of);
      const Value at = entry.At("time_us");
      const int64_t told =
          at.is(Pickle::Type::kInt) ? at.Int() : origin_ + static_cast<int64_t>(index);
      // The clock is the machine's, which may be set; the order of the entries is what holds.
      if (told >= origin_ && told - origin_ < (int64_t{1} << 43))
        time = std::max(time, (told - origin_) * 1000);
      last_time_ = std::max(last_time_, time);
      const Value action = entry.At("action");
      if (!action.is(Pickle::Type::kText))
        ThrowDataLoss(absl::StrCat(what_, ": ", of, " has no action"));
      ReadEntry(device, action.Text(), entry, of, time);
    }
  }

  void ReadEntry(DeviceState& device, std::string_view action, Value entry, const std::string& of,
                 int64_t time) {
    const bool allocates = action == "alloc", frees = action == "free_completed";
    const bool requests_free = action == "free_requested";
    const bool maps = action == "segment_alloc" || action == "segment_map";
    const bool unmaps = action == "segment_free" || action == "segment_unmap";
    if (!allocates && !frees && !requests_free && !maps && !unmaps) {
      ++(action == "oom" ? entries_.out_of_memory : entries_.others);
      return;
    }
    const int64_t address = Number(entry.At("addr"), absl::StrCat("addr of ", of));
    const int64_t size = Number(entry.At("size"), absl::StrCat("size of ", of));
    if (allocates) {
      device.live[address] = device.allocations.size();
      device.allocations.push_back(Make(entry, address, size, size, time, 0));
    } else if (frees) {
      if (const auto found = device.live.find(address); found != device.live.end()) {
        Allocation& allocation = device.allocations[found->second];
        allocation.died = time;
        allocation.died_entry = entry_;
        device.live.erase(found);
      } else {
        device.allocations.push_back(Make(entry, address, size, size, 0, ProfileArray::kAtStart));
        device.allocations.back().died = time;
        device.allocations.back().died_entry = entry_;
      }
    } else if (maps) {
      device.segments[address] = size;
      device.seen.push_back({address, size});
      device.reserved.push_back({time, size});
    } else if (unmaps) {
      const auto found = device.segments.find(address);
      if (found == device.segments.end()) {
        device.reserved_at_start += size;
        device.seen.push_back({address, size});
      } else {
        device.segments.erase(found);
      }
      device.reserved.push_back({time, -size});
    }
  }

  Allocation Make(Value entry, int64_t address, int64_t size, int64_t requested, int64_t born,
                  uint8_t flags) {
    const auto [site, function] = SiteOf(entry.At("frames"));
    const Value stream = entry.At("stream");
    const int64_t number = stream.is(Pickle::Type::kInt) ? stream.Int() : 0;
    return {address,
            size,
            requested,
            born,
            kAliveAtEnd,
            site,
            Intern(absl::StrCat("stream ", number, function.empty() ? "" : " #", function)),
            flags,
            entry_,
            /*died_entry=*/0};
  }

  void ReadSegment(Value segment, size_t index) {
    CountStep();
    const std::string of = absl::StrCat("segment ", index);
    CheckKeys(segment, of);
    const Value device_number = segment.At("device");
    const int64_t number = device_number.is(Pickle::Type::kInt) ? device_number.Int() : 0;
    if (number < 0 || number >= static_cast<int64_t>(kMostDevices))
      ThrowDataLoss(absl::StrCat(what_, ": ", of, " is of device ", number));
    DeviceState& device = devices_[static_cast<uint32_t>(number)];
    const int64_t begin = Number(segment.At("address"), absl::StrCat("address of ", of));
    const int64_t size = Number(segment.At("total_size"), absl::StrCat("total_size of ", of));
    if (device.segments.try_emplace(begin, size).second) {
      device.reserved_at_start += size;
      device.seen.push_back({begin, size});
    }
    const Value blocks = segment.At("blocks");
    if (!blocks.is(Pickle::Type::kList)) return;
    int64_t address = begin;
    for (const Value block : blocks) {
      CountStep();
      CheckKeys(block, absl::StrCat("a block of ", of));
      const Value told = block.At("address");
      if (told.is(Pickle::Type::kInt))
        address = Number(told, absl::StrCat("address of a block of ", of));
      const int64_t bytes = Number(block.At("size"), absl::StrCat("size of a block of ", of));
      const Value asked = block.At("requested_size");
      const int64_t requested =
          asked.is(Pickle::Type::kInt) ? std::clamp<int64_t>(asked.Int(), 0, bytes) : bytes;
      const Value state = block.At("state");
      if (state.is(Pickle::Type::kText) && state.Text().starts_with("active")) {
        const auto found = device.live.find(address);
        if (found == device.live.end()) {
          device.live[address] = device.allocations.size();
          device.allocations.push_back(
              Make(block, address, bytes, requested, 0, ProfileArray::kAtStart));
        } else {
          Allocation& allocation = device.allocations[found->second];
          allocation.requested = std::min(requested, allocation.size);
        }
      }
      address += bytes;
      if (address > kMostBytes)
        ThrowDataLoss(absl::StrCat(what_, ": ", of, " ends beyond ", kMostBytes));
    }
  }

  const Pickle& pickle_;
  const size_t most_steps_;
  const std::string what_;
  size_t steps_ = 0;
  int64_t entry_ = 0;
  int64_t origin_ = 0, last_time_ = 0;
  size_t site_bytes_ = 0;
  SnapshotEntries entries_;
  std::map<uint32_t, DeviceState> devices_;
  std::unordered_map<std::string, uint32_t> strings_;
  std::unordered_map<uint32_t, std::pair<uint32_t, std::string>>
      sites_;  // by the pickle's number of the frames
};

}  // namespace

SnapshotEntries ReadSnapshotEntries(std::string_view bytes, const std::string& what) {
  const Pickle pickle(bytes, what);
  return Reader(pickle, bytes.size(), what).Read();
}

}  // namespace tidepool
