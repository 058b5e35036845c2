// Tiles of four vectors of tile_kernels.h, 1 to 12 rows of 32 floats, for AVX-512, System V calling convention:
//   void tidepool_tile_avx512_<rows>x4(const TileArgs* args)
// The text is written out because gcc 12 moves sums between registers and the stack in the loop: 12 rows reach 87 % of what the
// processor can multiply and add that way, and 93 % so.
//
// Registers in the loop: one pointer per row of A in rax rbx rcx rdx r8 to r15, the offset common to them in rbp, B in rsi, and in
// rdi where the offset ends, or the count. Sums are zmm0 to zmm23, a row of B zmm24 and zmm25, elements of A zmm26 to zmm31: 24
// multiply-adds for 14 loads.
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
#define ARG_FLAGS 96(%rdi)

#define LOCAL_ARGS 0(%rsp)
#define LOCAL_SEGMENT 8(%rsp)
#define LOCAL_REST 16(%rsp)
#define LOCAL_A_STEP 24(%rsp)
#define LOCAL_B_STEP 32(%rsp)
#define LOCAL_BYTES 40

// Applies `op row, pointer, element's register, sums' registers, argument` to each row of the tile.
.macro EACH_ROW rows, op, argument
  \op 0, %rax, 26, 0, 1, \argument
  .if \rows > 1
    \op 1, %rbx, 27, 2, 3, \argument
  .endif
  .if \rows > 2
    \op 2, %rcx, 28, 4, 5, \argument
  .endif
  .if \rows > 3
    \op 3, %rdx, 29, 6, 7, \argument
  .endif
  .if \rows > 4
    \op 4, %r8, 30, 8, 9, \argument
  .endif
  .if \rows > 5
    \op 5, %r9, 31, 10, 11, \argument
  .endif
  .if \rows > 6
    \op 6, %r10, 26, 12, 13, \argument
  .endif
  .if \rows > 7
    \op 7, %r11, 27, 14, 15, \argument
  .endif
  .if \rows > 8
    \op 8, %r12, 28, 16, 17, \argument
  .endif
  .if \rows > 9
    \op 9, %r13, 29, 18, 19, \argument
  .endif
  .if \rows > 10
    \op 10, %r14, 30, 20, 21, \argument
  .endif
  .if \rows > 11
    \op 11, %r15, 31, 22, 23, \argument
  .endif
.endm

.macro ZERO_ROW row, pointer, t, c0, c1, argument
  vpxord %zmm\c0, %zmm\c0, %zmm\c0
  vpxord %zmm\c1, %zmm\c1, %zmm\c1
.endm

// rbp: the array of row pointers.
.macro LOAD_A_POINTER row, pointer, t, c0, c1, argument
  mov 8*\row(%rbp), \pointer
.endm

// rbp: the array of row pointers of C, rsi: the offset.
.macro LOAD_C_POINTER row, pointer, t, c0, c1, argument
  mov 8*\row(%rbp), \pointer
  add %rsi, \pointer
.endm

.macro MULTIPLY_ROW row, pointer, t, c0, c1, offset
  vbroadcastss \offset(\pointer,%rbp), %zmm\t
  vfmadd231ps %zmm24, %zmm\t, %zmm\c0
  vfmadd231ps %zmm25, %zmm\t, %zmm\c1
.endm

.macro STEP rows, a_offset, b_offset
  vmovups \b_offset(%rsi), %zmm24
  vmovups \b_offset+64(%rsi), %zmm25
  EACH_ROW \rows, MULTIPLY_ROW, \a_offset
.endm

// The second vector of a row of C may be partial: k1. The operand that comes first is the one whose NaN stays.
.macro ACCUMULATE_ROW row, pointer, t, c0, c1, argument
  vmovups (\pointer), %zmm24
  vmovups 64(\pointer), %zmm25{%k1}{z}
  vaddps %zmm\c0, %zmm24, %zmm\c0
  vaddps %zmm\c1, %zmm25, %zmm\c1
.endm

// zmm24 and zmm25: bias.
.macro ADD_BIAS_ROW row, pointer, t, c0, c1, argument
  vaddps %zmm24, %zmm\c0, %zmm\c0
  vaddps %zmm25, %zmm\c1, %zmm\c1
.endm

// zmm24: 0. NaN stays, being the second source.
.macro RELU_ROW row, pointer, t, c0, c1, argument
  vmaxps %zmm\c0, %zmm24, %zmm\c0
  vmaxps %zmm\c1, %zmm24, %zmm\c1
.endm

.macro STORE_ROW row, pointer, t, c0, c1, argument
  vmovups %zmm\c0, (\pointer)
  vmovups %zmm\c1, 64(\pointer){%k1}
.endm

// Elements of A `step` bytes apart and rows of B one behind the other: four steps from one set of addresses, then what is left.
.macro SEGMENT rows, step
  mov ARG_SEGMENT_LENGTH, %rdi
  mov %rdi, LOCAL_REST
  andq $3, LOCAL_REST
  and $-4, %rdi
  imul $\step, %rdi, %rdi
  add %rbp, %rdi
  cmp %rdi, %rbp
  je 4f
  .p2align 5
3:
  STEP \rows, 0, 0
  STEP \rows, \step, 128
  STEP \rows, 2*\step, 256
  STEP \rows, 3*\step, 384
  add $4*\step, %rbp
  add $512, %rsi
  cmp %rdi, %rbp
  jne 3b
4:
  mov LOCAL_REST, %rdi
  test %rdi, %rdi
  jz 1b
5:
  STEP \rows, 0, 0
  add $\step, %rbp
  add $128, %rsi
  dec %rdi
  jnz 5b
  jmp 1b
.endm

.macro SAVE register
  push \register
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset \register, 0
.endm

.macro RESTORE register
  pop \register
  .cfi_adjust_cfa_offset -8
  .cfi_restore \register
.endm

.macro TILE rows
  .globl tidepool_tile_avx512_\rows\()x4
  .hidden tidepool_tile_avx512_\rows\()x4
  .type tidepool_tile_avx512_\rows\()x4, @function
  .p2align 6
tidepool_tile_avx512_\rows\()x4:
  .cfi_startproc
  SAVE %rbx
  SAVE %rbp
  SAVE %r12
  SAVE %r13
  SAVE %r14
  SAVE %r15
  sub $LOCAL_BYTES, %rsp
  .cfi_adjust_cfa_offset LOCAL_BYTES
  mov %rdi, LOCAL_ARGS
  mov ARG_A_STEP, %rax
  mov %rax, LOCAL_A_STEP
  mov ARG_B_STEP, %rax
  mov %rax, LOCAL_B_STEP
  mov ARG_SEGMENTS_BEGIN, %rax
  mov %rax, LOCAL_SEGMENT
  mov ARG_B, %rsi
  mov ARG_A_ROWS, %rbp
  EACH_ROW \rows, LOAD_A_POINTER
  EACH_ROW \rows, ZERO_ROW
1:
  mov LOCAL_ARGS, %rdi
  mov LOCAL_SEGMENT, %rbp
  cmp %rbp, ARG_SEGMENTS_END
  je 9f
  mov (%rbp), %rbp
  addq $8, LOCAL_SEGMENT
  cmpq $128, ARG_B_STEP
  jne 6f
  cmpq $4, ARG_A_STEP
  je 2f
  cmpq $32, ARG_A_STEP
  jne 6f
  SEGMENT \rows, 32
2:
  SEGMENT \rows, 4
6:
  mov ARG_SEGMENT_LENGTH, %rdi
  test %rdi, %rdi
  jz 1b
7:
  STEP \rows, 0, 0
  add LOCAL_A_STEP, %rbp
  add LOCAL_B_STEP, %rsi
  dec %rdi
  jnz 7b
  jmp 1b
9:
  // 8 + tail floats exist of the second vector.
  mov ARG_TAIL, %rcx
  add $8, %ecx
  mov $1, %eax
  shl %cl, %eax
  dec %eax
  kmovw %eax, %k1
  mov ARG_C_ROWS, %rbp
  mov ARG_C_OFFSET, %rsi
  EACH_ROW \rows, LOAD_C_POINTER
  mov ARG_FLAGS, %rbp
  mov ARG_BIAS, %rsi
  test $1, %ebp
  jz 1f
  EACH_ROW \rows, ACCUMULATE_ROW
1:
  test %rsi, %rsi
  jz 1f
  vmovups (%rsi), %zmm24
  vmovups 64(%rsi), %zmm25
  EACH_ROW \rows, ADD_BIAS_ROW
1:
  test $2, %ebp
  jz 1f
  vpxord %zmm24, %zmm24, %zmm24
  EACH_ROW \rows, RELU_ROW
1:
  EACH_ROW \rows, STORE_ROW
  vzeroupper
  add $LOCAL_BYTES, %rsp
  .cfi_adjust_cfa_offset -LOCAL_BYTES
  RESTORE %r15
  RESTORE %r14
  RESTORE %r13
  RESTORE %r12
  RESTORE %rbp
  RESTORE %rbx
  ret
  .cfi_endproc
  .size tidepool_tile_avx512_\rows\()x4, .-tidepool_tile_avx512_\rows\()x4
.endm

  .text
.irp rows, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
  TILE \rows
.endr

#endif  // defined(__x86_64__) && defined(__ELF__)

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", @progbits
#endif
