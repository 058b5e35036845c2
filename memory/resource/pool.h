// Pool: blocks of any size out of retained chunks of another resource, cut from the oldest chunk
// that has a free block that is large enough, from the smallest such block there; neighbours merged
// when free. All bookkeeping is outside the memory, so it may be of any device. Workspaces serve
// spills from a Pool; its chunks are kept between cycles.
//
//   PagesResource pages({.owner = &owner});
//   Pool pool(pages, size_t{1} << 20, 64);
//   const Allocation block = pool.Allocate(1000, 64);
//
// Requests of up to chunk_bytes share chunks of that size; those of which fewer than 16 fit have
// chunks of as many as fit, so that none ends with a part that is too small for another. A larger
// one gets a chunk of its own, rounded up as what it wraps rounds up; small blocks never keep a
// large chunk from going back.
//
// Footprint. A use (a cycle, a request) ends with TrimIdle; "live" is the most bytes of blocks that
// were alive at once, in this use or the n before (at most 2 n), for which TrimIdle(n) keeps
// chunks: kinds of uses that take turns do not take each other's chunks away.
//
// A size that was released is served again from what is owned: nothing more is taken as long as a
// free block will do.
//
// Large blocks take, when another chunk has been taken for one, at most 1.1 times what was live
// and chunk_bytes: a free chunk serves requests of at least 10/11 of it, and before another is
// taken, chunks without live blocks go, first those that it can serve for, then those used longest
// ago, until the bound is kept.
// Nothing goes for it at other times: when less lives later, each chunk stays as long as it
// serves once in the n uses of TrimIdle(n), and the bound is that of the use in which a chunk
// was taken last. A pool that did so in two uses and still owns something pays in memory from
// then on rather than in system calls, so that a cycle that repeats settles: a large chunk is
// cut up by requests of at least a fifth of it, and up to twice what was live is kept: 1.25
// times at first, more after each use that makes room even so. So large chunks take at most five
// times what lives in them, or that. (Of a pool that grows, cycles of a buffer that doubles, old
// and new alive at once, settle at 1.1 times what is live; of one that grows by half at 1.2, of
// several that double in turns at 1.2 to 1.6.) Not where requests of 32 MiB or more are other ones
// in each use, and in none of the last 256 the same: what they find by chance is not worth that
// memory, and 1.1 times is kept.
//
// Small blocks that are kept gather in the chunks that were there first, whatever temporaries come
// and go: streams of those and sizes drawn at random stay below 1.25 times what was live and three
// chunks (pool_test). The worst there can be, "live" being the most since a chunk in use was taken:
//
//   (1 + floor(log2(chunk_bytes / alignment))) * (5 * live + one chunk)
//
// For each doubling of sizes take the chunks of which those are the smallest blocks they ever had,
// and the moment when the newest of them got such a block: none of the others had room for it, so
// between blocks of at least half its size there were gaps smaller than it, and four fifths of a
// chunk at most were gaps. (It is the order of chunks that gives the logarithm. The best fit among
// all of them, which this pool took before, puts what is kept into the newest, each time another.)
// No allocator that moves nothing does better than 1 + log2(chunk_bytes / alignment) / 2 times
// (Robson 1974); his stream takes this one to 6 times.
//
// TrimIdle(n) gives back the chunks in which no block was alive during the last n uses, also while
// other blocks are.
//
// A pool that grows (PoolGrowth) takes larger chunks the more lives: chunk_bytes at first, then a
// sixteenth of what was live (and is owned still); only requests beyond that and beyond 1 MiB have
// chunks of their own. A chunk for requests of which few fit is a multiple of the one that made it,
// and such requests take the best fit among all chunks: equal large blocks waste nothing but the
// end of the last chunk. Where twice what was live is kept, they also cut up large chunks of up to
// 16 times their size (as larger requests do then), before another chunk is taken: so uses of
// different kinds have one memory in turns. Those that need more than twice what was live even so
// take and give back some chunks in each turn.
//
// Uses that end without live blocks (but those of coarse_alignment_), and of which three made room
// or owned more than 17/16 of what was live and 1 MiB (1.25 times where what it wraps has no
// MemoryResource::ReservePages, where the use was the same as the last one, and where coarse blocks
// and others had one chunk after each other: such chunks serve them for nothing), get one chunk for
// all that is not coarse, the arena, in the place of those there were. Each request is the best fit
// of it, a sixteenth of what is live and more from the end of what fits, so that small blocks leave
// no gaps between large ones. It is empty when a use begins, so a use that is the same again lies
// as it lay before: what fitted once fits again, and uses of one kind or of many in turns ask for
// nothing.
//
// It has addresses for three times what was live, and memory where blocks are or were: before more
// is held than 1.125 times what was live and 1 MiB, what lies free goes back, some pages of it, and
// comes again when a block is cut there; as a use ends, what is beyond that goes too. What is large
// comes from the front of what fits where less memory has to come there. A use that had to give
// back and is known, release for release, of the last 256 such, may hold an eighth more from then
// on, up to 2.5 times, or 1.25 with requests of 32 MiB or more (a stream of Robson's kind needs 2.2
// times, and holds as much of a malloc): so what comes again settles in memory rather than in
// system calls, until none of 64 uses was known. A use that was the same as the last one, release
// for release, and had to give back, settles at once: those after it that are the same hold what
// they reach, up to twice what was live and 1 MiB, and what that was is the bound of others then.
// (With requests of 32 MiB or more only if there were no others since there are arenas, or when 16
// running were the same; others do not inherit it. Kinds in turns, drawn, would else hold twice
// what is live.) Others that give back often, of less than 32 MiB, get 1.25 times, and such of any
// size as in two uses running had more than half of what was live come again get a sixteenth more,
// up to 10/16 (a malloc holds 1.4 to 1.8 times what is live of such, drawn), and one less after 64
// uses that were not known. Where requests
// of 32 MiB or more are other ones in each use, 33/32 of what was live and 2 MiB are held. A block
// that gets no memory there has a chunk of its own, which goes with the use. Another arena comes
// when an eighth and 1 MiB less is live than when it was made, or when what is live outgrows its
// addresses; none, when nothing was in chunks for n uses.
//
// Below 1 MiB of what is live, and where what it wraps has no such addresses, it has all of its
// memory at once: 17/16 of what was live and 1 MiB at first. A request that its gaps leave no room
// for has a chunk of its own, which goes with the use, or sooner when another is needed, and the
// next arena is larger by what was live beside it: to twice what was live where the same use,
// release for release, had that before (of the last 256), else to 1.25 times, or 1.375 after three
// others. A smaller one comes when so much less is live than when its size was decided that it was
// 1.5 times that and 1 MiB. There comes none where requests of 32 MiB or more are other ones in each
// use, as above. Coarse blocks of some uses lie beside the arena of others: up to twice what was
// live is kept of both, as above.
//
// Every block has the readable tail of what it wraps behind it (that of the last one of a chunk);
// in AddressSanitizer builds, where released bytes are poisoned, the first 16 bytes of it. The
// alignment is the pool's own for every block; requests for more are refused as impossible
// (align_resource.h), but for PoolGrowth::coarse_alignment: such blocks have chunks of their own
// kind until those are idle, and none in an arena.
//
// Threads: one at a time (locked_resource.h). While what it wraps takes a chunk or has one back,
// others may come in: on this thread from callbacks, or where the lock of its users is given up
// meanwhile; nothing that was seen before is used after. Cost: some tens of nanoseconds once
// chunks exist, the logarithm of their number among it; beyond chunk_bytes a look at each chunk.
#ifndef TIDEPOOL_MEMORY_RESOURCE_POOL_H_
#define TIDEPOOL_MEMORY_RESOURCE_POOL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/mapped_vector.h"
#include "tidepool/memory/resource/first_fit.h"
#include "tidepool/memory/resource/fit_tree.h"
#include "tidepool/memory/resource/known_kinds.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

// How a pool grows; see "A pool that grows" above.
struct PoolGrowth {
  bool grows = false;  // false: every chunk has chunk_bytes, but those of larger requests
  // More than the pool's alignment, 0: none. Requests of up to this alignment are served too; sizes
  // of those beyond the pool's own are rounded up to it, and chunks for them have 1 MiB.
  size_t coarse_alignment = 0;
};

class Pool final : public MemoryResource {
 public:
  static constexpr size_t kLeastChunkBytes = 4096;  // of a chunk

  // `chunk_bytes`, rounded up to the alignment, is at least kLeastChunkBytes; smaller chunks are
  // taken where that much is refused. `alignment` (a power of two, at least 16) is that of every
  // block and the granule of sizes. Throws kInvalidArgument for others.
  Pool(MemoryResource& upstream, size_t chunk_bytes, size_t alignment, PoolGrowth growth = {});
  // Gives everything back, blocks in use too.
  ~Pool() override;

  // As MemoryResource says.
  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  Device device() const override { return upstream_.device(); }
  std::string Describe() const override { return "pool of " + upstream_.Describe(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override;

  size_t owned_bytes() const override { return owned_bytes_; }  // footprints of chunks
  size_t used_bytes() const { return used_bytes_; }             // live blocks
  size_t block_count() const { return block_count_; }           // live blocks
  size_t chunk_count() const { return chunks_.size(); }         // that it has now
  bool has_arena() const { return arena_ != nullptr; }          // as above
  size_t fine_bytes() const { return fine_bytes_; }             // live blocks that are not coarse
  size_t fine_bytes_beside_arena() const { return beside_bytes_; }  // of these

  // As MemoryResource says; TrimIdle ends a use.
  size_t Trim() noexcept override;
  size_t TrimIdle(int uses) noexcept override;
  // Memory was short in this use: from the next one on all sizes share one chunk, whose memory is where blocks are, if what it wraps
  // can do that. Of a pool that grows.
  void NoteShortage() noexcept { is_short_ = true; }
  // Of a pool that grows: whether more is owned than it keeps for what was live, as after a time in
  // which more was. Then chunks more than twice as large as those of now serve small blocks no
  // more, and who keeps such blocks between uses without need may release them, so that they gather
  // in few chunks and the others go. A look at each chunk.
  bool FitToLive() noexcept;
  // For the next 64 uses blocks lie by themselves, for who was refused memory beside what they had left free between them: those
  // of 32 KiB and of a 512th of what is live have chunks of their own, which serve nothing else while they are there, and smaller
  // ones share chunks of few of them. More system calls.
  void TakeChunksOfOne() noexcept { of_one_uses_ = kUsesOfOne; }
  bool takes_chunks_of_one() const { return of_one_uses_ > 0; }
  // The chunks without live blocks whose token, of what it wraps, `goes` says so of. Returns bytes.
  size_t TrimIf(absl::FunctionRef<bool(void*)> goes) noexcept;

 private:
  static constexpr int kLoose = 2;  // uses that made room until large chunks are shared
  static constexpr int kMostLoose = kLoose + 2;           // until twice what was live is kept
  static constexpr size_t kArenaSlack = size_t{1} << 20;  // of an arena, beside what is live
  // What an arena whose memory comes and goes in parts holds beside what is live, in sixteenths of that: at first,
  // where it gives back kManyHoles times in a use, and where such uses are known.
  static constexpr size_t kFewestGaps = 2, kManyGaps = 4, kBusyGaps = 10, kMostGaps = 24;
  static constexpr int kManyHoles = 12;
  static constexpr int kForgets = 64;
  // Of less that is live an arena has all of its memory at once.
  static constexpr size_t kLeastInParts = size_t{1} << 20;
  static constexpr size_t kGrowth = 16;  // a chunk is at most one part in so many of what was live
  static constexpr int kUsesOfOne = 64;
  static constexpr size_t kLeastOfOne = size_t{32} << 10, kMostOfOne = 512;
  // Fewer of a size in a chunk than this, and its end would be missed.
  static constexpr size_t kMany = 16;

  struct Chunk;
  struct Block : FitNode {  // size: rounded up to the granule
    std::byte* data;
    Block* previous_in_chunk;
    Block* next_in_chunk;  // of unused records: the next one
    Chunk* chunk;
    bool free;
  };
  struct Chunk {
    void* token;
    size_t bytes;  // asked for
    size_t footprint;
    Block* first;
    bool large;        // of one request
    bool coarse;       // so are its live blocks
    bool is_arena;     // was made to be one; never coarse
    uint64_t used_in;  // the last use that cut a block from it
    size_t place;      // in chunks_
    size_t room;       // no less than its largest free block; SIZE_MAX of a large one
    FitTree tree;      // its free blocks
    std::unique_ptr<Chunk> next_leaving;
    std::unique_ptr<Pages> pages;  // of an arena whose memory comes and goes in parts
    bool busy;                     // it does, and nobody else is served from it

    bool idle() const { return first->free && first->next_in_chunk == nullptr; }
  };

  bool IsFromEnd(const Block& block, size_t bytes) const noexcept;
  Block* Cut(Block* block, size_t bytes, bool coarse) noexcept;
  void Join(Block* block) noexcept;
  bool Fill(Block& block);
  bool FillOrJoin(Block* block);
  void NoteFilled(size_t bytes) noexcept;
  void MakeHoles(Chunk& chunk, size_t most, size_t lacks) noexcept;
  void FitHeld(size_t most) noexcept;
  void SetBusy(Chunk& chunk, bool busy) noexcept;
  void NoteFootprint(Chunk& chunk) noexcept;
  bool HasOwnChunk(size_t bytes) const noexcept;
  Block* FindLarge(size_t bytes, bool coarse) const noexcept;
  Block* FindShared(size_t bytes, bool coarse) noexcept;
  Block* FindBest(size_t bytes, bool coarse) const noexcept;
  size_t ChunkBytesFor(size_t bytes, bool coarse) const;
  Allocation AddChunk(size_t bytes, bool coarse, Block** whole);
  Allocation TakeChunk(size_t bytes, bool coarse, size_t* asked);
  void ReserveRecords();
  bool MayHold(size_t bytes, size_t chunk_bytes) const;
  bool CutsDeeply() const;
  size_t Slack(size_t peak, bool coarse) const;
  size_t SpanBytesFor(size_t live) const;
  void MakeRoom(size_t bytes, size_t footprint, bool coarse) noexcept;
  void GiveBack(std::unique_ptr<Chunk> chunk) noexcept;
  bool JudgeHuge() noexcept;
  void FitArena(bool made_room, bool strange, uint64_t kept) noexcept;
  size_t ArenaBytesFor(size_t peak) const;
  void ReplaceArena(size_t bytes, size_t peak, bool in_parts = false) noexcept;
  void AskWhetherItReserves() noexcept;
  void FitGaps(uint64_t kind, size_t peak, bool huge, bool reached) noexcept;
  void FitParts(size_t peak, size_t beside) noexcept;
  // What an arena has that has all of its memory.
  static size_t MostWithGaps(size_t peak) { return peak + peak / 4 + kArenaSlack; }
  // What one holds whose memory comes and goes in parts.
  size_t MostHeld(size_t peak) const {
    const size_t gaps = peak + peak / kGrowth * gaps_ + kArenaSlack;
    const size_t held = few_gaps_ ? std::min(gaps, peak + peak / 32 + 2 * kArenaSlack) : gaps;
    return reaches_ ? std::max(held, 2 * peak + kArenaSlack) : held;
  }
  template <typename Predicate>
  size_t GiveBackWhere(const Predicate& goes) noexcept;
  static size_t RoundedTo(size_t granule, size_t bytes) {
    return (bytes + (bytes == 0) + granule - 1) & ~(granule - 1);
  }
  // Whether blocks of that kind may be cut from the chunk: the kind that lives there, or either one
  // of an idle chunk. An arena is for fine ones even then. Those look into it before all chunks and
  // do not ask what lives there, and as it need not end at a multiple of the coarse alignment,
  // what came from its end would not begin at one.
  bool HasKind(const Chunk& chunk, bool coarse) const {
    return chunk.coarse == coarse || (coarse_alignment_ > 0 && chunk.idle() && !chunk.is_arena);
  }
  // Whether the chunk is one of those that requests of that kind share.
  bool Serves(const Chunk& chunk, bool coarse) const {
    return !chunk.large && !chunk.busy && HasKind(chunk, coarse);
  }
  void SetRoom(Chunk& chunk, size_t room) noexcept;
  void UpdateShared() noexcept;
  size_t peak_used_bytes() const { return std::max(peak_used_bytes_, last_peak_used_bytes_); }
  void AddFree(Block* block) noexcept;
  void TakeFree(Block* block) noexcept;
  bool HasNodes() const { return recycled_ != nullptr && recycled_->next_in_chunk != nullptr; }
  void MakeNodes();
  void DropNodes() noexcept;
  Block* NewNode() noexcept;
  void RecycleNode(Block* node) noexcept;
  void Poison(const std::byte* data, size_t bytes) const;

  MemoryResource& upstream_;
  const size_t chunk_bytes_;
  const size_t alignment_;
  const bool grows_;
  int of_one_uses_ = 0;  // more, in which blocks lie by themselves
  const size_t coarse_alignment_;
  const size_t chunk_alignment_;
  const bool on_host_;  // only its addresses have an AddressSanitizer shadow
  std::vector<std::unique_ptr<Chunk>> chunks_;  // the oldest first
  // By place, for fine and for coarse blocks: `room`, or 0 of chunks that do not serve those.
  FirstFit room_[2];
  size_t span_bytes_;                       // of the next chunk of several requests
  size_t shared_bytes_;                     // requests beyond it have chunks of their own
  std::vector<MappedVector<Block>> slabs_;  // of nodes
  size_t nodes_ = 0;
  Block* recycled_ = nullptr;
  size_t owned_bytes_ = 0;
  size_t asked_bytes_ = 0;  // footprints of chunks that are being taken
  size_t used_bytes_ = 0;
  size_t block_count_ = 0;
  uint64_t use_ = 0;                 // number of calls of TrimIdle
  size_t peak_used_bytes_ = 0;       // in this use and the uses_of_peak_ before
  size_t last_peak_used_bytes_ = 0;  // in as many before these as chunks are kept for
  uint64_t uses_of_peak_ = 0;
  // The same of blocks that are not coarse, of a pool that grows.
  size_t fine_bytes_ = 0;
  size_t peak_fine_bytes_ = 0;
  size_t last_peak_fine_bytes_ = 0;
  // Bytes of these outside of the arena, where there is one; and the most of them in this use.
  size_t beside_bytes_ = 0;
  size_t peak_beside_bytes_ = 0;
  static constexpr int kStrikes = kLoose + 1;
  static constexpr int kOverflowsBeforeWide = 3;
  bool has_arenas_ = false;      // one chunk for all that is not coarse, in each use
  Chunk* arena_ = nullptr;       // that of now, one of chunks_
  size_t arena_bytes_ = 0;       // of the next one
  bool arena_is_due_ = false;    // the next chunk of such is one
  bool keeps_blocks_ = false;    // such were live when the last use ended
  bool arena_in_parts_ = false;  // and its memory comes and goes in parts
  size_t gaps_ = kFewestGaps;    // what it holds beside what is live, in sixteenths of that
  int made_holes_ = 0;           // since the last use ended, how often
  size_t filled_bytes_ = 0;      // likewise, memory that came where it had gone
  bool is_busy_ = false;         // that was much of what is live, in this use
  bool was_busy_ = false;        // in the last one
  int unknown_uses_ = 0;         // running, while more is held for those that are known
  bool reserves_ = false;        // what it wraps has addresses without memory
  bool asked_reserves_ = false;
  bool few_gaps_ = false;  // the last uses were other ones each time
  // Running, that were as the one before. Kinds in turns drawn at random seldom do so that often.
  static constexpr uint8_t kEqualUses = 16;
  uint8_t equal_uses_ = 0;
  bool had_others_ = false;   // since it was decided to have arenas
  bool reaches_ = false;      // the next ones, if they are equal too, hold what they reach
  bool kinds_share_ = false;  // in this use a chunk served coarse blocks and others
  size_t arena_peak_ = 0;     // what was live when it was decided how large they are
  int strikes_ = 0;           // uses after which it would have been better to have them
  int overflows_ =
      0;  // uses that are not known, which an arena of the size for those had no room for
  KnownKinds overflowed_;    // uses that an arena had no room for
  uint64_t kind_ = 0;        // what this use asks for and releases, in order, as a hash
  uint64_t last_kind_ = 0;   // of the last
  bool is_short_ = false;    // NoteShortage()
  bool makes_room_ = false;  // chunks went in this use because another came
  int looseness_ = 0;        // uses that did so since the pool was empty
  // The huge requests of uses, in any order, as hashes: of this one, and of the last ones that had
  // some.
  static constexpr size_t kHugeBytes = size_t{1} << 25;
  static constexpr int kStrange = 2;
  uint64_t huge_ = 0;  // 0: none
  KnownKinds huge_kinds_;
  uint64_t last_huge_use_ = 0;  // that had one; 0: none
  int strange_uses_ = 0;        // running, of no kind that is known
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_POOL_H_
