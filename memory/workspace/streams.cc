#include "tidepool/memory/workspace/streams.h"

#include <algorithm>
#include <cmath>

#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/stream_script.h"

namespace tidepool {

std::vector<Step> ParserDocument(std::mt19937_64& random) {
  StreamScript script;
  const size_t nodes = 5000 + random() % 2000;
  for (size_t i = 0; i < nodes; ++i) {
    script.Get(32 + random() % 200);
    if (random() % 3 == 0) script.Get(16 + random() % (random() % 20 == 0 ? 4000 : 120));
    if (random() % 8 == 0) {  // a vector that grows
      size_t bytes = 64;
      script.Get(bytes);
      for (size_t n = random() % 6; n > 0; --n) {
        script.Get(bytes *= 2);
        script.PutAt(script.alive() - 2);
      }
    }
    if (random() % 16 == 0) script.PutOneOf(random());
  }
  return script.Finish();
}

std::vector<Step> Sequence(std::mt19937_64& random) {
  const size_t length = 100 + random() % 200;
  StreamScript script;
  script.Get(length * 512);
  for (size_t i = 0; i < length; ++i) {
    script.Get(4 * 4096);
    script.Get(4096);
    script.PutAt(script.alive() - 2);
  }
  for (size_t i = 0; i < length; ++i) {
    script.Get(4 * 4096);
    script.PutLast();
    script.PutLast();
  }
  return script.Finish();
}

std::vector<Step> Batch(std::mt19937_64& random) {
  const size_t batch = 1 + random() % 32;
  StreamScript script;
  script.Get(batch * 4096);
  for (size_t layer = 0; layer < 24; ++layer) {
    script.Get(batch * (16384 - 512 * layer));
    script.Get(batch * 2048);
    script.PutAt(script.alive() - 3);
    script.PutLast();
  }
  return script.Finish();
}

std::vector<Step> LargeTemporary(std::mt19937_64&) {
  StreamScript script;
  script.Get(size_t{1} << 20);
  for (int i = 0; i < 20; ++i) {
    script.Get(size_t{97} << 20);
    script.PutLast();
  }
  return script.Finish();
}

std::vector<Step> LargeSizes(std::mt19937_64& random) {
  StreamScript script;
  for (int i = 0; i < 40; ++i) {
    // As many of each power of two: 64 bytes to 256 MiB, and up to 44 MiB more.
    const size_t bytes = size_t{64} << (random() % 23);
    script.Get(bytes + random() % (bytes / 6 + 1));
    ReleaseSome(script, random, 12);
  }
  return script.Finish();
}

namespace {

// As DrawSize, by numbers of more than five digits.
size_t DrawSizeFinely(std::mt19937_64& random, double least, double most) {
  const double power =
      std::uniform_real_distribution<double>(std::log2(least), std::log2(most))(random);
  return static_cast<size_t>(std::exp2(power));
}

// Sizes are `sizes`', lives `lives`'.
std::vector<Step> Draws(std::mt19937_64& sizes, std::mt19937_64& lives, int count, double least,
                        double most, size_t most_alive, double factor = 1) {
  StreamScript script;
  for (int i = 0; i < count; ++i) {
    script.Get(
        static_cast<size_t>(factor * static_cast<double>(DrawSizeFinely(sizes, least, most))));
    ReleaseSome(script, lives, most_alive);
  }
  return script.Finish();
}

constexpr double kKiB = 1 << 10, kMiB = 1 << 20;

}  // namespace

std::vector<Step> DrawnLives(std::mt19937_64& random) {
  std::mt19937_64 sizes(20261126);
  return Draws(sizes, random, 30, 64 * kKiB, 8 * kMiB, 12);
}

std::vector<Step> Alternating(std::mt19937_64& random) {
  std::mt19937_64 fixed(1 + random() % 7);
  return Draws(fixed, fixed, 30, 64, 60 * kMiB, 10);
}

std::vector<Step> Saw(std::mt19937_64& random) {
  const size_t unit = (1 + random() % 37) << 16;
  StreamScript script;
  for (size_t i = 1; i <= 20; ++i) {
    script.Get(i * unit);
    if (script.alive() > 6) script.PutFirst();
  }
  return script.Finish();
}

std::vector<Step> DrawnFirst(std::mt19937_64& random) {
  std::mt19937_64 fixed(7);
  StreamScript script;
  script.Get((1 + random() % 200) << 20);
  for (int i = 1; i < 20; ++i) {
    script.Get(DrawSizeFinely(fixed, kMiB, 30 * kMiB));
    ReleaseSome(script, fixed, 12);
  }
  return script.Finish();
}

std::vector<Step> Drifting(std::mt19937_64& random) {
  std::mt19937_64 sizes(3), lives(4);
  return Draws(sizes, lives, 30, 64, 20 * kMiB, 8, 1 + static_cast<double>(random() % 100) / 100);
}

void PlayOn(const Allocator& allocator, const std::vector<Step>& steps,
            std::vector<void*>& blocks) {
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      allocator.release(blocks[step.number]);
    } else {
      blocks[step.number] = allocator.allocate(step.bytes);
      WritePages(blocks[step.number], step.bytes);
    }
  }
}

void PlayHere(const std::vector<Step>& steps, std::vector<BufferHandle>& blocks, bool writes) {
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      blocks[step.number].Reset();
    } else {
      blocks[step.number] = BufferHandle(AllocateHere(step.bytes));
      if (writes) WritePages(blocks[step.number]->data, step.bytes);
    }
  }
}

void PlayRawHere(const std::vector<Step>& steps, std::vector<RawBlock>& blocks, bool writes) {
  for (const Step& step : steps) {
    RawBlock& block = blocks[step.number];
    if (step.bytes == 0) {
      ReleaseBytes(block.data, block.bytes);
    } else {
      block = {AllocateBytesHere(step.bytes), step.bytes};
      if (writes) WritePages(block.data, step.bytes);
    }
  }
}

size_t MostAlive(const std::vector<Step>& steps) {
  std::vector<size_t> sizes(RequestsOf(steps));
  size_t alive = 0, most = 0;
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      alive -= sizes[step.number];
    } else {
      alive += sizes[step.number] = (step.bytes + 63) / 64 * 64;
    }
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace tidepool
