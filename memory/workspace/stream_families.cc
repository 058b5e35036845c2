#include "tidepool/memory/workspace/stream_families.h"

#include <algorithm>
#include <utility>

#include "tidepool/memory/workspace/stream_script.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

using Random = std::mt19937_64;

size_t Times(size_t bytes, double factor) {
  return static_cast<size_t>(static_cast<double>(bytes) * factor);
}

// `size` has the next size, `lives` who goes.
template <typename Size>
std::vector<Step> Mixed(uint64_t seed, Random& lives, const Size& size) {
  StreamScript script;
  for (uint64_t i = 0; i < 10 + seed % 50; ++i) {
    script.Get(size(i));
    ReleaseSome(script, lives, 2 + seed % 12);
  }
  return script.Finish();
}

size_t Largest(uint64_t seed) { return (1 + seed % 16) * kMiB; }

FamilyStream Fixed(uint64_t seed) {
  return [=](Random&, int) {
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t) { return DrawSize(sizes, 4 * kKiB, Largest(seed)); });
  };
}

FamilyStream LivesDrawn(uint64_t seed) {
  return [=](Random& random, int) {
    Random sizes(seed);
    return Mixed(seed, random, [&](uint64_t) { return DrawSize(sizes, 4 * kKiB, Largest(seed)); });
  };
}

FamilyStream SizesDrawn(uint64_t seed) {
  return [=](Random& random, int) {
    Random lives(seed);
    return Mixed(seed, lives, [&](uint64_t) { return DrawSize(random, 4 * kKiB, Largest(seed)); });
  };
}

FamilyStream AllDrawn(uint64_t seed) {
  return [=](Random& random, int) {
    return Mixed(seed, random, [&](uint64_t) { return DrawSize(random, 4 * kKiB, Largest(seed)); });
  };
}

FamilyStream Kinds(uint64_t seed) {
  return [=](Random&, int cycle) {
    const uint64_t kind = static_cast<uint64_t>(cycle * 7 + cycle / 3) % (2 + seed % 12);
    Random sizes(seed * 100 + kind), lives(seed * 100 + kind + 50);
    return Mixed(seed + kind, lives,
                 [&](uint64_t) { return DrawSize(sizes, 4 * kKiB, Largest(seed)); });
  };
}

// Kinds in bursts of 30 equal cycles.
FamilyStream Bursts(uint64_t seed) {
  return [=](Random&, int cycle) {
    const uint64_t kind = static_cast<uint64_t>(cycle / 30) % (2 + seed % 4);
    Random sizes(seed * 100 + kind), lives(seed * 100 + kind + 50);
    return Mixed(seed, lives, [&](uint64_t) { return DrawSize(sizes, 64, 60 * kMiB); });
  };
}

// Kinds of small blocks and of large ones.
FamilyStream SmallAndLargeKinds(uint64_t seed) {
  return [=](Random&, int cycle) {
    const bool large = cycle % 2 == 0;
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t) {
      return large ? DrawSize(sizes, kMiB, 2 * Largest(seed)) : DrawSize(sizes, 64, 64 * kKiB);
    });
  };
}

// Of 60 requests the first 30 are the same in all kinds, but not when they go.
FamilyStream BeginAlike(uint64_t seed) {
  return [=](Random&, int cycle) {
    const uint64_t kind = static_cast<uint64_t>(cycle * 7 + cycle / 3) % (2 + seed % 12);
    Random sizes(seed), lives(seed + 1 + kind);
    StreamScript script;
    for (int i = 0; i < 60; ++i) {
      if (i == 30) sizes.seed(seed * 100 + kind);
      script.Get(DrawSize(sizes, 64 * kKiB, 4 * kMiB));
      ReleaseSome(script, lives, 2 + seed % 12);
    }
    return script.Finish();
  };
}

FamilyStream LivesInTurns(uint64_t seed) {
  return [=](Random&, int cycle) {
    Random sizes(seed), lives(seed + static_cast<uint64_t>(cycle) % (2 + seed % 9));
    return Mixed(seed, lives, [&](uint64_t) { return DrawSize(sizes, 4 * kKiB, Largest(seed)); });
  };
}

// The first third is the same, what follows comes in another order each time.
FamilyStream PrefixShuffle(uint64_t seed, size_t unit) {
  return [=](Random& random, int) {
    Random sizes(seed), lives(seed + 1);
    std::vector<size_t> all;
    for (uint64_t i = 0; i < 12 + seed % 36; ++i)
      all.push_back(unit * DrawSize(sizes, 4 * kKiB, 4 * kMiB));
    std::shuffle(all.begin() + static_cast<std::ptrdiff_t>(all.size() / 3), all.end(), random);
    StreamScript script;
    for (const size_t bytes : all) {
      script.Get(bytes);
      ReleaseSome(script, lives, 3 + seed % 10);
    }
    return script.Finish();
  };
}

// All sizes up to so many parts of a hundred smaller or larger; `fixed`: but for the first.
FamilyStream Jitter(uint64_t seed, double percent, bool fixed) {
  return [=](Random& random, int) {
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t i) {
      const size_t bytes = DrawSize(sizes, 4 * kKiB, Largest(seed));
      const double factor = 1 + percent / 50 * (Part(random) - 0.5);
      return fixed && i == 0 ? bytes : Times(bytes, factor);
    });
  };
}

// One request more, of a drawn size at a drawn place.
FamilyStream OneMore(uint64_t seed) {
  return [=](Random& random, int) {
    Random sizes(seed), lives(seed + 1);
    StreamScript script;
    const uint64_t count = 10 + seed % 50, at = random() % count;
    for (uint64_t i = 0; i < count; ++i) {
      if (i == at) script.Get(DrawSize(random, 4 * kKiB, Largest(seed)));
      script.Get(DrawSize(sizes, 4 * kKiB, Largest(seed)));
      ReleaseSome(script, lives, 2 + seed % 12);
    }
    return script.Finish();
  };
}

// Ten times as large once in some dozen cycles, at no steady distance.
FamilyStream RareOutlier(uint64_t seed) {
  return [=](Random& random, int) {
    const size_t factor = random() % (12 + seed) == 0 ? 10 : 1;
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t) {
      return factor * Times(DrawSize(sizes, 64 * kKiB, 2 * kMiB), 0.9 + Part(random) / 5);
    });
  };
}

FamilyStream Changing(uint64_t seed, double by, size_t unit) {
  return [=](Random&, int cycle) {
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t) {
      return Times(unit * DrawSize(sizes, 64 * kKiB, 2 * kMiB), std::exp2(by * cycle));
    });
  };
}

FamilyStream SawOf(uint64_t seed, size_t unit) {
  return [=](Random& random, int) {
    const size_t bytes = unit * (1 + random() % 37) * kKiB;
    StreamScript script;
    for (size_t i = 1; i <= 10 + seed; ++i) {
      script.Get(i * bytes);
      if (script.alive() > 3 + seed % 5) script.PutFirst();
    }
    return script.Finish();
  };
}

// One is drawn from up to 200 MiB, the first or the last; the others are always the same.
FamilyStream OneDrawn(uint64_t seed, bool first) {
  return [=](Random& random, int) {
    Random sizes(seed), lives(seed + 1);
    const size_t drawn = (1 + random() % 200) * kMiB;
    StreamScript script;
    if (first) script.Get(drawn);
    for (uint64_t i = 0; i < 8 + seed; ++i) {
      script.Get(DrawSize(sizes, kMiB, 30 * kMiB));
      ReleaseSome(script, lives, 4 + seed % 9);
    }
    if (!first) script.Get(drawn);
    return script.Finish();
  };
}

// 40 equal ones, of which every second goes before larger ones come.
FamilyStream Checkered(uint64_t seed) {
  return [=](Random& random, int) {
    const size_t unit = (64 + random() % 512) * kKiB;
    StreamScript script;
    for (int i = 0; i < 40; ++i) script.Get(unit);
    for (uint32_t i = 0; i < 40; i += 2) script.Put(i);
    for (int i = 0; i < 18; ++i) script.Get(unit + unit / (2 + seed % 8));
    return script.Finish();
  };
}

// Small ones that stay among large ones that go.
FamilyStream Pins(uint64_t seed, size_t unit) {
  return [=](Random& random, int) {
    StreamScript script;
    std::vector<uint32_t> large;
    for (int i = 0; i < 80; ++i) {
      large.push_back(script.Get(unit * (256 * kKiB + random() % (2 * kMiB))));
      script.Get(unit * (4 + random() % 60) * kKiB);
      if (large.size() <= 2 + seed % 10) continue;
      const auto goes = large.begin() + static_cast<std::ptrdiff_t>(random() % large.size());
      script.Put(*goes);
      large.erase(goes);
    }
    return script.Finish();
  };
}

FamilyStream SinglePins(uint64_t seed) {
  return [=](Random& random, int) {
    StreamScript script;
    for (int i = 0; i < 60; ++i) {
      const uint32_t large = script.Get(kMiB + random() % (4 * kMiB));
      script.Get(16 + random() % (size_t{256} << seed % 8));
      script.Put(large);
    }
    return script.Finish();
  };
}

// Ten large ones, of which half go, small ones, then six large ones.
FamilyStream TwoPhases(uint64_t seed, size_t unit) {
  return [=](Random& random, int) {
    StreamScript script;
    for (int i = 0; i < 10; ++i) script.Get(unit * (2 * kMiB + random() % (2 * kMiB)));
    for (uint32_t i = 0; i < 10; i += 2) script.Put(i);
    for (uint64_t i = 0; i < 10 + 5 * seed; ++i) script.Get(unit * (1 + random() % 32) * kKiB);
    for (int i = 0; i < 6; ++i) script.Get(unit * (2 * kMiB + random() % (2 * kMiB)));
    return script.Finish();
  };
}

FamilyStream SmallAndHuge(uint64_t seed) {
  return [=](Random& random, int) {
    StreamScript script;
    for (int i = 0; i < 10; ++i) {
      script.Get(random() % (4 * kMiB));
      const uint32_t huge = script.Get(100 * kMiB + random() % (200 * kMiB));
      script.Put(huge);
      if (script.alive() > 4 + seed % 3) script.PutFirst();
    }
    return script.Finish();
  };
}

FamilyStream InOrder(uint64_t seed, bool last) {
  return [=](Random& random, int) {
    StreamScript script;
    for (uint64_t i = 0; i < 20 + 5 * seed; ++i) {
      script.Get(DrawSize(random, 64, Largest(seed)));
      while (script.alive() > 3 + seed % 12) last ? script.PutLast() : script.PutFirst();
    }
    return script.Finish();
  };
}

// Powers of two, as in Robson's stream: of each size so many that they fill what is alive, of which every second goes.
FamilyStream Powers(uint64_t seed) {
  return [=](Random&, int) {
    const size_t all = (4 + seed) * kMiB;
    StreamScript script;
    std::vector<std::pair<uint32_t, size_t>> alive;
    size_t used = 0;
    for (size_t bytes = all / 32; bytes <= all / 4; bytes *= 2) {
      for (; used + bytes <= all; used += bytes) alive.emplace_back(script.Get(bytes), bytes);
      std::vector<std::pair<uint32_t, size_t>> stay;
      for (size_t i = 0; i < alive.size(); ++i) {
        if (i % 2 == 0) {
          stay.push_back(alive[i]);
        } else {
          script.Put(alive[i].first);
          used -= alive[i].second;
        }
      }
      alive = stay;
    }
    return script.Finish();
  };
}

// Buffers in turns, each moved to one of so many times its size when it is full.
FamilyStream GrowingBuffers(uint64_t seed, double factor) {
  return [=](Random& random, int) {
    StreamScript script;
    std::vector<std::pair<uint32_t, size_t>> buffers;
    for (uint64_t i = 0; i < 1 + seed % 4; ++i) {
      const size_t bytes = 64 + random() % 4000;
      buffers.emplace_back(script.Get(bytes), bytes);
    }
    for (int i = 0; i < 40; ++i) {
      auto& [number, bytes] = buffers[random() % buffers.size()];
      if (bytes > Largest(seed)) continue;
      bytes = Times(bytes, factor);
      const uint32_t moved = script.Get(bytes);
      script.Put(std::exchange(number, moved));
    }
    return script.Finish();
  };
}

FamilyStream Batches(uint64_t seed) {
  return [=](Random& random, int) {
    const size_t batch = 1 + random() % 32;
    Random sizes(seed), lives(seed + 1);
    return Mixed(seed, lives, [&](uint64_t) { return batch * DrawSize(sizes, kKiB, 512 * kKiB); });
  };
}

// A sequence of 5 to 60 steps, forward and back.
FamilyStream Lengths(uint64_t seed) {
  return [=](Random& random, int) {
    const uint64_t length = 5 + random() % 56;
    StreamScript script;
    for (uint64_t i = 0; i < length; ++i) {
      const uint32_t scratch = script.Get(seed * 96 * kKiB);
      script.Get(seed * 24 * kKiB);
      script.Put(scratch);
    }
    for (uint64_t i = 0; i < length; ++i) {
      script.Get(seed * 96 * kKiB);
      script.PutLast();
      script.PutLast();
    }
    return script.Finish();
  };
}

template <typename Make, typename... Arguments>
std::function<FamilyStream(uint64_t)> With(Make make, Arguments... arguments) {
  return [=](uint64_t seed) { return make(seed, arguments...); };
}

}  // namespace

std::vector<StreamFamily> StreamFamilies() {
  return {
      {"fixed", "always the same", Fixed},
      {"lives", "lives drawn anew", LivesDrawn},
      {"sizes", "sizes drawn anew", SizesDrawn},
      {"drawn", "sizes and lives drawn anew", AllDrawn},
      {"kinds", "2 to 13 kinds in turns", Kinds},
      {"bursts", "kinds in bursts of 30 cycles, up to 60 MiB", Bursts},
      {"smalllarge", "kinds of small and of large ones in turns", SmallAndLargeKinds},
      {"beginalike", "kinds that begin alike", BeginAlike},
      {"livesinturns", "lives in turns", LivesInTurns},
      {"prefixshuffle", "what follows a common beginning in drawn order", With(PrefixShuffle, 1)},
      {"prefixshuffle_x10", "likewise", With(PrefixShuffle, 10)},
      {"jitter1", "a hundredth larger or smaller", With(Jitter, 1.0, false)},
      {"jitter5", "a twentieth larger or smaller", With(Jitter, 5.0, false)},
      {"jitter20", "a fifth larger or smaller", With(Jitter, 20.0, false)},
      {"onefixed", "likewise, but for the first", With(Jitter, 20.0, true)},
      {"onemore", "one request more at a drawn place", OneMore},
      {"rareoutlier", "ten times as large once in a while", RareOutlier},
      {"growing", "a hundredth larger each time", With(Changing, 0.01435, 1)},
      {"growing_x10", "likewise", With(Changing, 0.01435, 10)},
      {"shrinking", "a two-hundredth smaller each time", With(Changing, -0.0072, 40)},
      {"saw", "multiples of a drawn unit", With(SawOf, 4)},
      {"saw_x10", "likewise", With(SawOf, 40)},
      {"firstdrawn", "the first drawn up to 200 MiB", With(OneDrawn, true)},
      {"lastdrawn", "the last drawn up to 200 MiB", With(OneDrawn, false)},
      {"checkered", "every second of equal ones goes, larger ones come", Checkered},
      {"pins", "small ones that stay among large ones", With(Pins, 1)},
      {"pins_x10", "likewise", With(Pins, 10)},
      {"singlepins", "small ones that stay between single large ones", SinglePins},
      {"twophase", "large ones, half go, small ones, large ones", With(TwoPhases, 1)},
      {"twophase_x10", "likewise", With(TwoPhases, 10)},
      {"smallhuge", "small ones and one of 100 to 300 MiB in turns", SmallAndHuge},
      {"stack", "the last goes first", With(InOrder, true)},
      {"queue", "the first goes first", With(InOrder, false)},
      {"powers", "powers of two of which every second goes", Powers},
      {"doubling", "buffers that double", With(GrowingBuffers, 2.0)},
      {"growingbyhalf", "buffers that grow by half", With(GrowingBuffers, 1.5)},
      {"batches", "32 batch sizes", Batches},
      {"lengths", "sequences of 5 to 60 steps", Lengths},
  };
}

}  // namespace tidepool
