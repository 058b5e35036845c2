// Tiles of tile_kernels.h for AVX2 and FMA, System V calling convention:
//   void tidepool_tile_avx2_<rows>x<vectors>(const TileArgs* args)
//
// Registers in the loop: one pointer per row of A in rax rbx rcx rdx rsi r8 r9 r10, the offset
// common to them in r11, B in r12, the two steps in r13 and r14, the count in r15, the next
// segment in rbp, args in rdi. Accumulators from ymm0 up, a row of B in ymm12.., one broadcast
// element of A in ymm13, ymm14 or ymm15. A 6x2 or 4x3 tile is 12 multiply-adds for 8 or 7 loads.
#if defined(__x86_64__) && defined(__ELF__)

#define ARG_A_ROWS 0(%rdi)
#define ARG_A_STEP 8(%rdi)
#define ARG_SEGMENTS_BEGIN 16(%rdi)
#define ARG_SEGMENTS_END 24(%rdi)
#define ARG_SEGMENT_LENGTH 32(%rdi)
#define ARG_B 40(%rdi)
#define ARG_B_STEP 48(%rdi)
#define ARG_C_ROWS 56(%rdi)
#define ARG_C_OFFSET 64(%rdi)
#define ARG_BIAS 72(%rdi)
#define ARG_TAIL 80(%rdi)
#define ARG_TAIL_MASK 88(%rdi)
#define ARG_FLAGS 96(%rdi)

// Applies `op row_index, pointer, temporary, accumulators...` to each row of the tile.
.macro EACH_ROW rows, vectors, op
  .if \vectors == 1
    \op 0, %rax, 13, 0
    .if \rows > 1
      \op 1, %rbx, 14, 1
    .endif
    .if \rows > 2
      \op 2, %rcx, 15, 2
    .endif
    .if \rows > 3
      \op 3, %rdx, 13, 3
    .endif
    .if \rows > 4
      \op 4, %rsi, 14, 4
    .endif
    .if \rows > 5
      \op 5, %r8, 15, 5
    .endif
    .if \rows > 6
      \op 6, %r9, 13, 6
    .endif
    .if \rows > 7
      \op 7, %r10, 14, 7
    .endif
  .elseif \vectors == 2
    \op 0, %rax, 14, 0, 1
    .if \rows > 1
      \op 1, %rbx, 15, 2, 3
    .endif
    .if \rows > 2
      \op 2, %rcx, 14, 4, 5
    .endif
    .if \rows > 3
      \op 3, %rdx, 15, 6, 7
    .endif
    .if \rows > 4
      \op 4, %rsi, 14, 8, 9
    .endif
    .if \rows > 5
      \op 5, %r8, 15, 10, 11
    .endif
  .else
    \op 0, %rax, 15, 0, 1, 2
    .if \rows > 1
      \op 1, %rbx, 15, 3, 4, 5
    .endif
    .if \rows > 2
      \op 2, %rcx, 15, 6, 7, 8
    .endif
    .if \rows > 3
      \op 3, %rdx, 15, 9, 10, 11
    .endif
  .endif
.endm

.macro ZERO_ROW row, pointer, t, c0, c1, c2
  vxorps %xmm\c0, %xmm\c0, %xmm\c0
  .ifnb \c1
    vxorps %xmm\c1, %xmm\c1, %xmm\c1
  .endif
  .ifnb \c2
    vxorps %xmm\c2, %xmm\c2, %xmm\c2
  .endif
.endm

.macro LOAD_A_POINTER row, pointer, t, c0, c1, c2
  mov 8*\row(%r15), \pointer
.endm

// r15: the array of row pointers of C, r11: the offset.
.macro LOAD_C_POINTER row, pointer, t, c0, c1, c2
  mov 8*\row(%r15), \pointer
  add %r11, \pointer
.endm

.macro PREFETCH_C_ROW row, pointer, t, c0, c1, c2
  mov 8*\row(%r15), \pointer
  prefetcht0 (\pointer,%r11)
.endm

.macro MULTIPLY_ROW row, pointer, t, c0, c1, c2
  vbroadcastss (\pointer,%r11), %ymm\t
  vfmadd231ps %ymm12, %ymm\t, %ymm\c0
  .ifnb \c1
    vfmadd231ps %ymm13, %ymm\t, %ymm\c1
  .endif
  .ifnb \c2
    vfmadd231ps %ymm14, %ymm\t, %ymm\c2
  .endif
.endm

.macro STEP rows, vectors
  vmovups (%r12), %ymm12
  .if \vectors > 1
    vmovups 32(%r12), %ymm13
  .endif
  .if \vectors > 2
    vmovups 64(%r12), %ymm14
  .endif
  EACH_ROW \rows, \vectors, MULTIPLY_ROW
  add %r13, %r11
  add %r14, %r12
.endm

// The last vector of a row of C may be partial: it is loaded under the mask in ymm12.
.macro ACCUMULATE_ROW row, pointer, t, c0, c1, c2
  .ifb \c1
    vmaskmovps (\pointer), %ymm12, %ymm13
    vaddps %ymm13, %ymm\c0, %ymm\c0
  .else
    vaddps (\pointer), %ymm\c0, %ymm\c0
    .ifb \c2
      vmaskmovps 32(\pointer), %ymm12, %ymm13
      vaddps %ymm13, %ymm\c1, %ymm\c1
    .else
      vaddps 32(\pointer), %ymm\c1, %ymm\c1
      vmaskmovps 64(\pointer), %ymm12, %ymm13
      vaddps %ymm13, %ymm\c2, %ymm\c2
    .endif
  .endif
.endm

.macro BIAS_ROW row, pointer, t, c0, c1, c2
  vaddps %ymm12, %ymm\c0, %ymm\c0
  .ifnb \c1
    vaddps %ymm13, %ymm\c1, %ymm\c1
  .endif
  .ifnb \c2
    vaddps %ymm14, %ymm\c2, %ymm\c2
  .endif
.endm

// The accumulator is the second source of vmaxps: of max(0, NaN) that is what comes out.
.macro RELU_ROW row, pointer, t, c0, c1, c2
  vmaxps %ymm\c0, %ymm12, %ymm\c0
  .ifnb \c1
    vmaxps %ymm\c1, %ymm12, %ymm\c1
  .endif
  .ifnb \c2
    vmaxps %ymm\c2, %ymm12, %ymm\c2
  .endif
.endm

.macro STORE_ROW row, pointer, t, c0, c1, c2
  vmovups %ymm\c0, (\pointer)
  .ifnb \c1
    vmovups %ymm\c1, 32(\pointer)
  .endif
  .ifnb \c2
    vmovups %ymm\c2, 64(\pointer)
  .endif
.endm

// Stores all but the last vector and moves the pointer to where that one goes.
.macro STORE_HEAD_ROW row, pointer, t, c0, c1, c2
  .ifnb \c1
    vmovups %ymm\c0, (\pointer)
    .ifnb \c2
      vmovups %ymm\c1, 32(\pointer)
      add $64, \pointer
    .else
      add $32, \pointer
    .endif
  .endif
.endm

.macro STORE_TAIL4 c, pointer
  vmovups %xmm\c, (\pointer)
  vextractf128 $1, %ymm\c, %xmm\c
  add $16, \pointer
.endm
.macro STORE_TAIL2 c, pointer
  vmovlps %xmm\c, (\pointer)
  vmovhlps %xmm\c, %xmm\c, %xmm\c
  add $8, \pointer
.endm
.macro STORE_TAIL1 c, pointer
  vmovss %xmm\c, (\pointer)
.endm

.macro LAST_VECTOR op, pointer, c0, c1, c2
  .ifnb \c2
    \op \c2, \pointer
  .else
    .ifnb \c1
      \op \c1, \pointer
    .else
      \op \c0, \pointer
    .endif
  .endif
.endm
.macro STORE_TAIL4_ROW row, pointer, t, c0, c1, c2
  LAST_VECTOR STORE_TAIL4, \pointer, \c0, \c1, \c2
.endm
.macro STORE_TAIL2_ROW row, pointer, t, c0, c1, c2
  LAST_VECTOR STORE_TAIL2, \pointer, \c0, \c1, \c2
.endm
.macro STORE_TAIL1_ROW row, pointer, t, c0, c1, c2
  LAST_VECTOR STORE_TAIL1, \pointer, \c0, \c1, \c2
.endm

.macro TILE rows, vectors
  .globl tidepool_tile_avx2_\rows\()x\vectors
  .hidden tidepool_tile_avx2_\rows\()x\vectors
  .type tidepool_tile_avx2_\rows\()x\vectors, @function
  .p2align 5
tidepool_tile_avx2_\rows\()x\vectors:
  .cfi_startproc
  push %rbx
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbx, 0
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %rbp, 0
  push %r12
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r12, 0
  push %r13
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r13, 0
  push %r14
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r14, 0
  push %r15
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset %r15, 0

  mov ARG_C_ROWS, %r15
  mov ARG_C_OFFSET, %r11
  EACH_ROW \rows, \vectors, PREFETCH_C_ROW
  mov ARG_A_ROWS, %r15
  EACH_ROW \rows, \vectors, LOAD_A_POINTER
  mov ARG_SEGMENTS_BEGIN, %rbp
  mov ARG_B, %r12
  mov ARG_A_STEP, %r13
  mov ARG_B_STEP, %r14
  EACH_ROW \rows, \vectors, ZERO_ROW
  cmp ARG_SEGMENTS_END, %rbp
  je 5f

1: // Each segment.
  mov (%rbp), %r11
  add $8, %rbp
  mov ARG_SEGMENT_LENGTH, %r15
  sub $4, %r15
  jl 3f
  .p2align 5
2:
  STEP \rows, \vectors
  STEP \rows, \vectors
  STEP \rows, \vectors
  STEP \rows, \vectors
  sub $4, %r15
  jge 2b
3:
  add $4, %r15
  jz 6f
4:
  STEP \rows, \vectors
  dec %r15
  jnz 4b
6:
  cmp ARG_SEGMENTS_END, %rbp
  jne 1b

5: // The rows of C.
  mov ARG_C_ROWS, %r15
  mov ARG_C_OFFSET, %r11
  EACH_ROW \rows, \vectors, LOAD_C_POINTER
  mov ARG_FLAGS, %r13
  mov ARG_BIAS, %r14
  test $1, %r13
  jz 7f
  mov ARG_TAIL_MASK, %r15
  vmovups (%r15), %ymm12
  EACH_ROW \rows, \vectors, ACCUMULATE_ROW
7:
  test %r14, %r14
  jz 7f
  vmovups (%r14), %ymm12
  .if \vectors > 1
    vmovups 32(%r14), %ymm13
  .endif
  .if \vectors > 2
    vmovups 64(%r14), %ymm14
  .endif
  EACH_ROW \rows, \vectors, BIAS_ROW
7:
  test $2, %r13
  jz 7f
  vxorps %xmm12, %xmm12, %xmm12
  EACH_ROW \rows, \vectors, RELU_ROW
7:
  mov ARG_TAIL, %r15
  cmp $8, %r15
  jne 7f
  EACH_ROW \rows, \vectors, STORE_ROW
  jmp 8f
7:
  EACH_ROW \rows, \vectors, STORE_HEAD_ROW
  test $4, %r15
  jz 7f
  EACH_ROW \rows, \vectors, STORE_TAIL4_ROW
7:
  test $2, %r15
  jz 7f
  EACH_ROW \rows, \vectors, STORE_TAIL2_ROW
7:
  test $1, %r15
  jz 8f
  EACH_ROW \rows, \vectors, STORE_TAIL1_ROW
8:
  vzeroupper
  pop %r15
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r15
  pop %r14
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r14
  pop %r13
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r13
  pop %r12
  .cfi_adjust_cfa_offset -8
  .cfi_restore %r12
  pop %rbp
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbp
  pop %rbx
  .cfi_adjust_cfa_offset -8
  .cfi_restore %rbx
  ret
  .cfi_endproc
  .size tidepool_tile_avx2_\rows\()x\vectors, .-tidepool_tile_avx2_\rows\()x\vectors
.endm

  .text
.irp rows, 1, 2, 3, 4, 5, 6, 7, 8
  TILE \rows, 1
.endr
.irp rows, 1, 2, 3, 4, 5, 6
  TILE \rows, 2
.endr
.irp rows, 1, 2, 3, 4
  TILE \rows, 3
.endr

#endif  // defined(__x86_64__) && defined(__ELF__)

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", @progbits
#endif
