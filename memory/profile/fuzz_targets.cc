// PyTorch's memory snapshots, which are pickles.
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/pytorch_snapshot.h"
#include "tidepool/memory/profile/testing/pickles.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"

using std::string_literals::operator""s;

namespace tidepool {
namespace {

std::vector<std::string> Snapshots() {
  std::vector<PickleWriter> nested = {PickleWriter().Number(1)};
  for (int i = 0; i < 50; ++i) nested = {PickleWriter().List(nested)};
  // One list that many hold: a bomb when all are walked through.
  std::string shared("\x80\x04]\x94(", 5);
  for (int i = 0; i < 200; ++i) shared += "N";
  shared += "e0]\x94(";
  for (int i = 0; i < 200; ++i) shared += std::string("h\x00", 2);
  return {
      SmallSnapshot(),
      PickleWriter()
          .Dict({{"segments", PickleWriter().List({})}, {"device_traces", PickleWriter().List({})}})
          .Take(),
      PickleWriter().Dict({{"device_traces", nested[0]}}).Take(), shared + "e.",
      "\x80\x02}q\x00(X\x08\x00\x00\x00segments]q\x01X\x0d\x00\x00\x00"
      "device_traces]q\x02]q\x03"
      "au."s};
}

// An opcode, a number, or a key that is known.
void MutateSnapshot(ByteMutator& mutator, std::string& bytes) {
  static constexpr const char kOps[] =
      "(.012GJKMNXaed}ehjl]qrstu)BCR\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x94\x95";
  const size_t at = mutator.Below(bytes.size());
  switch (mutator.Below(4)) {
    case 0:
      bytes[at] = kOps[mutator.Below(sizeof(kOps) - 1)];
      break;
    case 1:
      bytes.insert(at, 1, kOps[mutator.Below(sizeof(kOps) - 1)]);
      break;
    case 2: {
      static const std::vector<std::string> keys = {"addr",           "size",         "action",
                                                    "free_completed", "segment_free", "oom",
                                                    "frames",         "stream",       "alloc"};
      bytes.insert(at, PickleWriter().Text(keys[mutator.Below(keys.size())]).Take().substr(2));
      break;
    }
    default: {
      const size_t number = bytes.find("\x8a\x08", at);
      if (number == std::string::npos || number + 10 > bytes.size()) return mutator.Mutate(bytes);
      const uint64_t value = mutator.Number(4096);
      for (int i = 0; i < 8; ++i)
        bytes[number + 2 + static_cast<size_t>(i)] = static_cast<char>(value >> (8 * i));
    }
  }
}

void ReadSnapshot(const std::string& bytes) {
  const ProfileData data = ParsePyTorchSnapshot(bytes, "case");
  ASSERT_EQ(data.tiers.size(), data.devices.size());
  ASSERT_EQ(data.device_peaks.size(), data.devices.size());
  for (const ProfileCycleKind& kind : data.cycle_kinds) {
    ASSERT_EQ(kind.released_after.size(), kind.requests.size());
    for (size_t i = 0; i < kind.requests.size(); ++i) {
      ASSERT_GE(kind.requests[i].died, kind.requests[i].born);
      ASSERT_GE(kind.requests[i].taken, kind.requests[i].bytes);
      ASSERT_LT(kind.requests[i].name, data.strings.size());
      ASSERT_LT(kind.requests[i].site, data.strings.size());
      ASSERT_LT(kind.requests[i].owner, data.strings.size());
    }
  }
  internal::EncodeProfile(data);
}

TIDEPOOL_FUZZ_TARGET(PyTorchSnapshot,
                     {.corpus = &Snapshots, .mutate = &MutateSnapshot, .run = &ReadSnapshot});

}  // namespace
}  // namespace tidepool
