#include "tidepool/memory/recording/recorded_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

using What = RecordEvent::What;

RecordedBlocks MatchBlocks(const Record& record) {
  const std::vector<RecordEvent>& events = record.events;
  if (events.size() >= RecordedBlock::kNever) {
    ThrowResourceExhausted(absl::StrCat("record: found ", events.size(),
                                        " events, expected less than ", RecordedBlock::kNever));
  }
  RecordedBlocks matched;
  matched.block_of.assign(events.size(), RecordedBlock::kNever);
  // By device and key: keys are of one device's memory.
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint32_t> alive;
  absl::flat_hash_map<uint64_t, uint32_t> device_of;  // of the last block of a key
  absl::flat_hash_map<uint64_t, uint64_t> before;
  uint64_t live = 0;
  for (const RecordEvent& event : record.live) {
    if (event.block != 0) before[event.block] = event.bytes;
    live += event.bytes;
  }
  matched.from_before = matched.live_bound = live;
  const auto end = [&](uint32_t block, uint32_t at) {
    RecordedBlock& ended = matched.blocks[block];
    ended.freed = at;
    live -= events[ended.made].bytes;
  };
  for (uint32_t i = 0; i < events.size(); ++i) {
    const RecordEvent& event = events[i];
    if (event.what == What::kAllocate) {
      const auto number = static_cast<uint32_t>(matched.blocks.size());
      const auto [found, added] = alive.try_emplace({event.device, event.block}, number);
      if (!added) {
        end(found->second, i);
        matched.blocks[found->second].end_is_guessed = true;
        found->second = number;
      }
      device_of[event.block] = event.device;
      matched.blocks.push_back({.made = i});
      matched.block_of[i] = number;
      matched.requested += event.bytes;
      live += event.bytes;
      if (live > matched.live_bound) {
        matched.live_bound = live;
        matched.live_bound_at = i;
      }
    } else if (event.what == What::kFree) {
      const auto device = device_of.find(event.block);
      const auto found =
          device != device_of.end() ? alive.find({device->second, event.block}) : alive.end();
      if (found == alive.end()) {
        ++matched.unknown_frees;
        if (const auto old = before.find(event.block); old != before.end()) {
          live -= old->second;
          before.erase(old);
        }
        continue;
      }
      matched.block_of[i] = found->second;
      end(found->second, i);
      alive.erase(found);
    }
  }
  for (const auto& [key, block] : alive) {
    ++matched.never_freed;
    matched.never_freed_bytes += events[matched.blocks[block].made].bytes;
  }
  return matched;
}

std::vector<uint64_t> LiveBytes(const Record& record, const RecordedBlocks& blocks) {
  // A block whose release is missing ends where its key is given again.
  std::vector<uint64_t> ends(record.events.size());
  for (const RecordedBlock& block : blocks.blocks) {
    if (block.end_is_guessed) ends[block.freed] += record.events[block.made].bytes;
  }
  std::vector<uint64_t> live(record.events.size());
  uint64_t now = blocks.from_before;
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    const uint32_t block = blocks.block_of[i];
    if (record.events[i].what == What::kAllocate) {
      now = now + record.events[i].bytes - ends[i];
    } else if (block != RecordedBlock::kNever) {
      now -= record.events[blocks.blocks[block].made].bytes;
    }
    live[i] = now;
  }
  return live;
}

}  // namespace tidepool
