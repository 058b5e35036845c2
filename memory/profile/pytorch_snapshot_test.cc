#include "tidepool/memory/profile/pytorch_snapshot.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/pickle_reader.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/testing/pickles.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

std::string Message(const std::string& bytes) {
  try {
    ParsePyTorchSnapshot(bytes, "x.pickle");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    return error.message();
  }
  return "";
}

TEST(Pickle, PlainValues) {
  // pickle.dumps([None, True, False, 255, 65535, -2, 2**40, -2**40, 1.5, "text \u00e9", b"\x00", (1,), {"a": [2]}], 4)
  std::string bytes(
      "\x80\x04\x95\x3f\x00\x00\x00\x00\x00\x00\x00\x5d\x94\x28\x4e\x88\x89\x4b\xff\x4d\xff\xff\x4a"
      "\xfe\xff\xff\xff",
      27);
  bytes += std::string("\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00\x00\x00\x00\xff", 16);
  bytes += std::string(
      "G\x3f\xf8\x00\x00\x00\x00\x00\x00\x8c\x07"
      "text \xc3\xa9\x94"
      "C\x01\x00\x94"
      "K\x01\x85\x94",
      27);
  bytes += std::string(
      "}\x94\x8c\x01"
      "a\x94]\x94K\x02"
      "ase.",
      14);
  const Pickle pickle(bytes, "x");
  std::vector<Pickle::Value> values;
  for (const Pickle::Value value : pickle.root()) values.push_back(value);
  ASSERT_EQ(values.size(), 13u);
  EXPECT_TRUE(values[0].is(Pickle::Type::kNone));
  EXPECT_EQ(values[1].Int(), 1);
  EXPECT_EQ(values[2].Int(), 0);
  EXPECT_EQ(values[3].Int(), 255);
  EXPECT_EQ(values[4].Int(), 65535);
  EXPECT_EQ(values[5].Int(), -2);
  EXPECT_EQ(values[6].Int(), int64_t{1} << 40);
  EXPECT_EQ(values[7].Int(), -(int64_t{1} << 40));
  EXPECT_TRUE(values[8].is(Pickle::Type::kFloat));
  EXPECT_EQ(values[9].Text(), "text \xc3\xa9");
  EXPECT_TRUE(values[10].is(Pickle::Type::kBytes));
  EXPECT_EQ(values[11].size(), 1u);
  EXPECT_EQ((*values[12].At("a").begin()).Int(), 2);
  EXPECT_TRUE(values[12].At("b").is(Pickle::Type::kNone));
  EXPECT_THROW(values[9].Int(), Error);
  EXPECT_THROW(values[3].Text(), Error);
}

TEST(Pickle, NothingIsCalled) {
  // What pickle.loads would run: os.system("id").
  EXPECT_THAT(
      Message("\x80\x02"
              "cos\nsystem\nX\x02\x00"),
      HasSubstr("byte 2 of the pickle: opcode 0x63 would make an object or call a function"));
  for (const char op : {'c', 'i', 'o', 'R', 'b', 'P', 'Q', '\x81', '\x92', '\x93'}) {
    EXPECT_THAT(Message(std::string("\x80\x04N") + op), HasSubstr("byte 3 of the pickle: opcode"));
  }
}

TEST(Pickle, WhatIsBrokenIsToldWithItsOffset) {
  EXPECT_THAT(Message(""), HasSubstr("byte 0"));
  EXPECT_THAT(Message("\x80\x04X\xff\xff\xff\x7f"), HasSubstr("byte 2"));
  EXPECT_THAT(Message("\x80\x01N."), HasSubstr("protocol 1, expected 2 to 5"));
  EXPECT_THAT(Message("\x80\x04N.N"), HasSubstr("byte 4 of the pickle: bytes behind its end"));
  EXPECT_THAT(Message("\x80\x04NN."), HasSubstr("more than one value"));
  EXPECT_THAT(Message("\x80\x04."), HasSubstr("a value is missing"));
  EXPECT_THAT(Message("\x80\x04Ne."), HasSubstr("a mark is missing"));
  EXPECT_THAT(Message("\x80\x04NNa."), HasSubstr("expected a list"));
  EXPECT_THAT(Message("\x80\x04}(Nu."), HasSubstr("a key without a value"));
  EXPECT_THAT(Message("\x80\x04h\x07."), HasSubstr("value number 7 was not put"));
}

TEST(Pickle, NoValueHoldsItself) {
  EXPECT_THAT(Message(std::string("\x80\x02]q\x00h\x00"
                                  "a.",
                                  8)),
              HasSubstr("hold itself"));
  // a = [b]; b.append(a)
  EXPECT_THAT(Message(std::string("\x80\x02]q\x00]q\x01"
                                  "ah\x01h\x00"
                                  "a0.",
                                  15)),
              HasSubstr("hold itself"));
}

TEST(PyTorchSnapshot, AllocationsFreesAndSegments) {
  const std::string bytes = SmallSnapshot();
  const ProfileData data = ParsePyTorchSnapshot(bytes, "x.pickle");
  ASSERT_EQ(data.cycle_kinds.size(), 1u);
  const ProfileCycleKind& kind = data.cycle_kinds[0];
  // One that is freed and was there, one from block to end, then those of the trace.
  ASSERT_EQ(kind.requests.size(), 4u);
  EXPECT_EQ(kind.requests[0].flags, ProfileArray::kAtStart);
  EXPECT_EQ(kind.requests[0].bytes, 512);
  EXPECT_EQ(kind.requests[0].died, 1000);
  EXPECT_EQ(kind.requests[1].flags, ProfileArray::kAtStart);
  EXPECT_EQ(kind.requests[1].bytes, 1000);
  EXPECT_EQ(kind.requests[1].taken, 1024);
  EXPECT_EQ(kind.requests[1].died, data.duration);
  EXPECT_EQ(kind.requests[2].bytes, 4096);
  EXPECT_EQ(kind.requests[2].born, 2000);
  EXPECT_EQ(kind.requests[2].died, 4000);
  EXPECT_EQ(kind.requests[3].died, data.duration);
  EXPECT_EQ(data.strings[kind.requests[2].site],
            "conv2d (functional.py:10) < forward (model.py:20)");
  EXPECT_EQ(data.strings[kind.requests[2].owner], "stream 7 #forward");
  EXPECT_EQ(kind.bound, 1024 + 4096 + 2048);
  // 20 KiB, of which the trace knows no beginning, then 10 KiB more: addresses stand one behind the other.
  EXPECT_EQ(data.places[0].bytes, 30 << 10);
  EXPECT_EQ(kind.requests[2].offset, (20 << 10) + 0);
  EXPECT_EQ(BytesAtEnd(data)[0][1], 30 << 10);
  EXPECT_EQ(data.device_peaks[0], 30 << 10);
}

TEST(PyTorchSnapshot, AsARecord) {
  const Record record = ParsePyTorchSnapshotAsRecord(SmallSnapshot(), "x.pickle");
  using What = RecordEvent::What;
  // What was there: the one that is freed, and one of a block that the trace does not tell of.
  ASSERT_EQ(record.live.size(), 2u);
  EXPECT_EQ(record.live[0].bytes, 512u);
  EXPECT_EQ(record.live[1].bytes, 1000u);
  ASSERT_EQ(record.events.size(), 4u);
  const What whats[] = {What::kFree, What::kAllocate, What::kAllocate, What::kFree};
  const uint64_t bytes[] = {512, 4096, 2048, 4096};
  const int64_t times[] = {1000, 2000, 3000, 4000};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(record.events[i].what, whats[i]) << i;
    EXPECT_EQ(record.events[i].bytes, bytes[i]) << i;
    EXPECT_EQ(record.events[i].nanoseconds, times[i]) << i;
    EXPECT_EQ(record.events[i].number, record.live.size() + i + 1) << i;
    EXPECT_EQ(record.names[record.events[i].device], "cuda:0") << i;
  }
  EXPECT_EQ(record.events[0].block, record.live[0].block);
  EXPECT_EQ(record.events[3].block, record.events[1].block);
  EXPECT_EQ(record.names[record.events[1].owner], "stream 7 #forward");
  // What is written is read again: numbers, names and sizes are such as the format takes.
  const Record again = ParseRecord(FormatRecord(record), "again");
  EXPECT_EQ(again.events.size(), 4u);
  EXPECT_EQ(again.live.size(), 2u);
}

TEST(PyTorchSnapshot, EntriesOfOneMomentAreInTheirOrder) {
  const auto number = [](int64_t value) { return PickleWriter().Number(value); };
  const auto entry = [&](const char* action, int64_t address, int64_t time) {
    return PickleWriter().Dict({{"action", PickleWriter().Text(action)},
                                {"addr", number(address)},
                                {"size", number(512)},
                                {"time_us", number(time)}});
  };
  // An address is used again within a microsecond, and freed by the last entry.
  const Record record = ParsePyTorchSnapshotAsRecord(
      PickleWriter()
          .Dict({{"device_traces",
                  PickleWriter().List(
                      {PickleWriter().List(
                           {entry("alloc", 4096, 5), entry("free_completed", 4096, 5),
                            entry("alloc", 4096, 5), entry("free_completed", 4096, 9)}),
                       PickleWriter().List({entry("alloc", 4096, 7)})})}})
          .Take(),
      "x.pickle");
  using What = RecordEvent::What;
  std::vector<std::pair<What, uint64_t>> found;
  for (const RecordEvent& event : record.events) found.emplace_back(event.what, event.block);
  EXPECT_EQ(found, (std::vector<std::pair<What, uint64_t>>{{What::kAllocate, 1},
                                                           {What::kFree, 1},
                                                           {What::kAllocate, 2},
                                                           {What::kAllocate, 3},
                                                           {What::kFree, 2}}));
  EXPECT_EQ(record.threads, 2u);
  EXPECT_EQ(record.names[record.events[3].device], "cuda:1");
}

TEST(PyTorchSnapshot, OneThatPythonWrote) {
  const ProfileData data = ReadPyTorchSnapshot("memory/profile/testdata/snapshot.pickle");
  ASSERT_EQ(data.cycle_kinds.size(), 1u);
  const ProfileCycleKind& kind = data.cycle_kinds[0];
  EXPECT_EQ(kind.requests.size(), 37u);
  EXPECT_EQ(kind.requests[0].flags, ProfileArray::kAtStart);
  EXPECT_LE(kind.bound, kind.peak);
  EXPECT_LE(kind.peak, data.places[0].bytes);
  EXPECT_THAT(ProfilePage(data), HasSubstr("forward_block3"));
}

TEST(PyTorchSnapshot, WhatIsNamedAgainAndAgainIsNotReadForEver) {
  // 200 devices with one trace, of 1,000 times one entry: 200,000 of them in 3 KB.
  const auto ops = [](const PickleWriter& writer) {
    const std::string pickle = writer.Take();
    return pickle.substr(2, pickle.size() - 3);
  };
  std::string bytes = "\x80\x04}(" + ops(PickleWriter().Text("device_traces")) + "](]\x94(" +
                      ops(PickleWriter().Dict({{"action", PickleWriter().Text("x")}})) + "\x94";
  for (int i = 0; i < 1000; ++i) bytes += "h\x01";
  bytes += "e";
  for (int i = 0; i < 200; ++i) bytes += std::string("h\x00", 2);
  EXPECT_THAT(Message(bytes + "eu."), HasSubstr("more entries than its bytes can hold"));
}

TEST(PyTorchSnapshot, WhatIsNoneIsRefused) {
  EXPECT_THAT(Message(PickleWriter().Number(3).Take()), HasSubstr("the snapshot is no dictionary"));
  EXPECT_THAT(Message(PickleWriter().Dict({}).Take()),
              HasSubstr("found neither device_traces nor segments"));
  const auto trace = [](PickleWriter entry) {
    return Message(
        PickleWriter()
            .Dict({{"device_traces", PickleWriter().List({PickleWriter().List({entry})})}})
            .Take());
  };
  EXPECT_THAT(trace(PickleWriter().Number(1)), HasSubstr("an entry of the trace is no dictionary"));
  EXPECT_THAT(trace(PickleWriter().Dict({})), HasSubstr("entry 0 of device 0 has no action"));
  EXPECT_THAT(trace(PickleWriter().Dict(
                  {{"action", PickleWriter().Text("alloc")}, {"addr", PickleWriter().Number(-1)}})),
              HasSubstr("addr of entry 0 of device 0 is -1"));
  EXPECT_THAT(trace(PickleWriter().Dict(
                  {{"action", PickleWriter().Text("alloc")}, {"addr", PickleWriter().Number(1)}})),
              HasSubstr("found None, expected an int"));
}

}  // namespace
}  // namespace tidepool
