#include "tidepool/backends/cpu/pointwise_span.h"

#include "tidepool/backends/cpu/instruction_set.h"

#include <algorithm>
#include <cstring>

namespace tidepool::cpu {
namespace {

template <typename Bits>
void FillElements(const std::byte* element, void* out, int64_t count) {
  Bits value;
  std::memcpy(&value, element, sizeof(value));
  std::fill_n(static_cast<Bits*>(out), count, value);
}

void FillElements(const std::byte* element, int bytes, void* out, int64_t count) {
  switch (bytes) {
    case 1:
      return FillElements<uint8_t>(element, out, count);
    case 2:
      return FillElements<uint16_t>(element, out, count);
    case 4:
      return FillElements<uint32_t>(element, out, count);
    default:
      return FillElements<uint64_t>(element, out, count);
  }
}

// By blocks: constants spread out, elements converted, large results streamed.
void RunBlocks(const PointwiseOp& op, const LoopParameters& parameters, const PointwiseSpan& span,
               int64_t count, bool stream) {
  PointwiseBuffer in_buffers[kMostPointwiseInputs], z_buffer;
  const int64_t block = std::min(count, kPointwiseBlock);
  for (int i = 0; i < op.inputs; ++i) {
    if (span.steps[i] != 0) continue;
    if (op.in[i].convert != nullptr) {
      alignas(8) std::byte value[8];
      const void* element = span.in[i];
      op.in[i].convert(&element, value, 1, parameters);
      FillElements(value, op.in[i].converted_bytes, in_buffers[i].bytes, block);
    } else {
      FillElements(span.in[i], op.in[i].bytes, in_buffers[i].bytes, block);
    }
  }
  int64_t begin = 0;
  while (begin < count) {
    int64_t size = std::min(block, count - begin);
    std::byte* z = span.z + begin * op.out.bytes;
    if (stream) {  // from an aligned address on
      const int64_t beyond = reinterpret_cast<uintptr_t>(z) % 64;
      if (beyond != 0) size = std::min(size, (64 - beyond) / op.out.bytes);
    }
    const void* in[kMostPointwiseInputs];
    for (int i = 0; i < op.inputs; ++i) {
      in[i] = in_buffers[i].bytes;
      if (span.steps[i] == 0) continue;
      const void* elements = span.in[i] + begin * op.in[i].bytes;
      if (op.in[i].convert != nullptr) {
        op.in[i].convert(&elements, in_buffers[i].bytes, size, parameters);
      } else {
        in[i] = elements;
      }
    }
    const bool streamed = stream && size == kPointwiseBlock;
    if (op.out.convert != nullptr) {
      op.loop(in, z_buffer.bytes, size, parameters);
      const void* results = z_buffer.bytes;
      op.out.convert(&results, streamed ? z_buffer.bytes : z, size, parameters);
    } else {
      op.loop(in, streamed ? z_buffer.bytes : z, size, parameters);
    }
    if (streamed) ThisMachine().conversions->stream(z_buffer.bytes, z, size * op.out.bytes);
    begin += size;
  }
}

bool IsPlain(const PointwiseOp& op, const PointwiseSpan& span) {
  bool plain = op.out.convert == nullptr;
  for (int i = 0; i < op.inputs; ++i) {
    plain = plain && op.in[i].convert == nullptr && span.steps[i] == 1;
  }
  return plain;
}

}  // namespace

const PointwiseLoops& ThisMachine() {
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx512) return kAvx512Pointwise;
  if (BestInstructionSet() >= InstructionSet::kAvx2) return kAvx2Pointwise;
#endif
  return kPortablePointwise;
}

void RunPointwiseSpan(const PointwiseOp& op, const LoopParameters& parameters,
                      const PointwiseSpan& span, int64_t count, bool stream) {
  if (!stream && IsPlain(op, span)) {
    const void* in[kMostPointwiseInputs] = {span.in[0], span.in[1], span.in[2]};
    op.loop(in, span.z, count, parameters);
  } else {
    RunBlocks(op, parameters, span, count, stream);
  }
}

}  // namespace tidepool::cpu
