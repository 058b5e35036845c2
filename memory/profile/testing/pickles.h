// Pickles of plain values for tests, as Python's protocol 4 writes them.
#ifndef TIDEPOOL_MEMORY_PROFILE_TESTING_PICKLES_H_
#define TIDEPOOL_MEMORY_PROFILE_TESTING_PICKLES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tidepool {

// One value: its opcodes. Take() makes a pickle of it.
class PickleWriter {
 public:
  PickleWriter& Number(int64_t value) {
    ops_ += "\x8a\x08";
    for (int i = 0; i < 8; ++i) ops_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
    return *this;
  }
  PickleWriter& Text(const std::string& text) {
    ops_ += "\x8c";
    ops_ += static_cast<char>(text.size());
    ops_ += text;
    return *this;
  }
  PickleWriter& List(const std::vector<PickleWriter>& items) {
    ops_ += "](";
    for (const PickleWriter& item : items) ops_ += item.ops_;
    ops_ += 'e';
    return *this;
  }
  PickleWriter& Dict(const std::vector<std::pair<std::string, PickleWriter>>& items) {
    ops_ += "}(";
    for (const auto& [key, value] : items) ops_ += PickleWriter().Text(key).ops_ + value.ops_;
    ops_ += 'u';
    return *this;
  }
  std::string Take() const { return "\x80\x04" + ops_ + "."; }

 private:
  std::string ops_;
};

// A device's trace of seven entries: an array that was there is freed, two are allocated, one of them freed; a segment
// comes, another one with an array was there before.
inline std::string SmallSnapshot() {
  const auto number = [](int64_t value) { return PickleWriter().Number(value); };
  const auto text = [](const char* value) { return PickleWriter().Text(value); };
  const auto frame = [&](const char* name, const char* file, int line) {
    return PickleWriter().Dict(
        {{"name", text(name)}, {"filename", text(file)}, {"line", number(line)}});
  };
  const PickleWriter frames = PickleWriter().List(
      {frame("conv2d", "/usr/lib/torch/functional.py", 10), frame("forward", "/srv/model.py", 20)});
  const auto entry = [&](const char* action, int64_t address, int64_t size, int64_t time) {
    return PickleWriter().Dict({{"action", text(action)},
                                {"addr", number(address)},
                                {"size", number(size)},
                                {"stream", number(7)},
                                {"frames", frames},
                                {"time_us", number(1700000000000000 + time)}});
  };
  constexpr int64_t kOld = 0x7f0000000000, kNew = 0x7f0010000000;
  const auto block = [&](int64_t address, int64_t size, int64_t asked, const char* state) {
    return PickleWriter().Dict({{"address", number(address)},
                                {"size", number(size)},
                                {"requested_size", number(asked)},
                                {"state", text(state)},
                                {"frames", frames}});
  };
  const auto segment = [&](int64_t address, int64_t size, std::vector<PickleWriter> blocks) {
    return PickleWriter().Dict({{"device", number(0)},
                                {"address", number(address)},
                                {"total_size", number(size)},
                                {"blocks", PickleWriter().List(blocks)}});
  };
  return PickleWriter()
      .Dict(
          {{"device_traces",
            PickleWriter().List({PickleWriter().List(
                {entry("segment_alloc", kNew, 10 << 10, 0),
                 entry("free_completed", kOld + 4096, 512, 1), entry("alloc", kNew, 4096, 2),
                 entry("alloc", kNew + 4096, 2048, 3), entry("free_requested", kNew, 4096, 3),
                 entry("free_completed", kNew, 4096, 4), entry("snapshot", 0, 0, 5)})})},
           {"segments", PickleWriter().List(
                            {segment(kOld, 20 << 10,
                                     {block(kOld, 1024, 1000, "active_allocated"),
                                      block(kOld + 1024, 19 << 10, 0, "inactive")}),
                             segment(kNew, 10 << 10,
                                     {block(kNew, 4096, 0, "inactive"),
                                      block(kNew + 4096, 2048, 2048, "active_awaiting_free")})})}})
      .Take();
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_TESTING_PICKLES_H_
