// Tiles of tile_kernels.h for AVX-512, System V calling convention: 1 to 12 rows of 4 vectors (32 floats), 8 of 6 and 6 of 8.
//   void tidepool_tile_avx512_<rows>x<vectors>(const TileArgs* args)
// The text is written out because gcc 12 moves sums between registers and the stack in the loop.
//
// Registers in the loop: one pointer per row of A in rax rbx rcx rdx r8 to r15, the offset common to them in rbp, B in rsi, and in
// rdi where the offset ends, or the count. Sums are zmm0 to zmm23, then come two to four of a row of B and elements of A: 24
// multiply-adds for 14, 11 or 10 loads. Of what a Xeon with AMX can multiply and add these loops reach 91, 95 and 94 %.
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

// Applies `op row, pointer, element's register, argument, sums' registers...` to each row of the tile.
.macro EACH_ROW rows, registers, op, argument
  .if \registers == 2
    \op 0, %rax, 26, \argument, 0, 1
    .if \rows > 1
      \op 1, %rbx, 27, \argument, 2, 3
    .endif
    .if \rows > 2
      \op 2, %rcx, 28, \argument, 4, 5
    .endif
    .if \rows > 3
      \op 3, %rdx, 29, \argument, 6, 7
    .endif
    .if \rows > 4
      \op 4, %r8, 30, \argument, 8, 9
    .endif
    .if \rows > 5
      \op 5, %r9, 31, \argument, 10, 11
    .endif
    .if \rows > 6
      \op 6, %r10, 26, \argument, 12, 13
    .endif
    .if \rows > 7
      \op 7, %r11, 27, \argument, 14, 15
    .endif
    .if \rows > 8
      \op 8, %r12, 28, \argument, 16, 17
    .endif
    .if \rows > 9
      \op 9, %r13, 29, \argument, 18, 19
    .endif
    .if \rows > 10
      \op 10, %r14, 30, \argument, 20, 21
    .endif
    .if \rows > 11
      \op 11, %r15, 31, \argument, 22, 23
    .endif
  .elseif \registers == 3
    \op 0, %rax, 27, \argument, 0, 1, 2
    .if \rows > 1
      \op 1, %rbx, 28, \argument, 3, 4, 5
    .endif
    .if \rows > 2
      \op 2, %rcx, 29, \argument, 6, 7, 8
    .endif
    .if \rows > 3
      \op 3, %rdx, 30, \argument, 9, 10, 11
    .endif
    .if \rows > 4
      \op 4, %r8, 31, \argument, 12, 13, 14
    .endif
    .if \rows > 5
      \op 5, %r9, 27, \argument, 15, 16, 17
    .endif
    .if \rows > 6
      \op 6, %r10, 28, \argument, 18, 19, 20
    .endif
    .if \rows > 7
      \op 7, %r11, 29, \argument, 21, 22, 23
    .endif
  .else
    \op 0, %rax, 28, \argument, 0, 1, 2, 3
    .if \rows > 1
      \op 1, %rbx, 29, \argument, 4, 5, 6, 7
    .endif
    .if \rows > 2
      \op 2, %rcx, 30, \argument, 8, 9, 10, 11
    .endif
    .if \rows > 3
      \op 3, %rdx, 31, \argument, 12, 13, 14, 15
    .endif
    .if \rows > 4
      \op 4, %r8, 28, \argument, 16, 17, 18, 19
    .endif
    .if \rows > 5
      \op 5, %r9, 29, \argument, 20, 21, 22, 23
    .endif
  .endif
.endm

.macro ZERO_ROW row, pointer, t, argument, c0, c1, c2, c3
  vpxord %zmm\c0, %zmm\c0, %zmm\c0
  vpxord %zmm\c1, %zmm\c1, %zmm\c1
  .ifnb \c2
    vpxord %zmm\c2, %zmm\c2, %zmm\c2
  .endif
  .ifnb \c3
    vpxord %zmm\c3, %zmm\c3, %zmm\c3
  .endif
.endm

// rbp: the array of row pointers.
.macro LOAD_A_POINTER row, pointer, t, argument, c0, c1, c2, c3
  mov 8*\row(%rbp), \pointer
.endm

// rbp: the array of row pointers of C, rsi: the offset.
.macro LOAD_C_POINTER row, pointer, t, argument, c0, c1, c2, c3
  mov 8*\row(%rbp), \pointer
  add %rsi, \pointer
.endm

.macro MULTIPLY_ROW row, pointer, t, offset, c0, c1, c2, c3
  vbroadcastss \offset(\pointer,%rbp), %zmm\t
  vfmadd231ps %zmm24, %zmm\t, %zmm\c0
  vfmadd231ps %zmm25, %zmm\t, %zmm\c1
  .ifnb \c2
    vfmadd231ps %zmm26, %zmm\t, %zmm\c2
  .endif
  .ifnb \c3
    vfmadd231ps %zmm27, %zmm\t, %zmm\c3
  .endif
.endm

// From `from` on in a row of B, or bias.
.macro LOAD_COLUMNS registers, from
  vmovups \from, %zmm24
  vmovups 64+\from, %zmm25
  .if \registers > 2
    vmovups 128+\from, %zmm26
  .endif
  .if \registers > 3
    vmovups 192+\from, %zmm27
  .endif
.endm

.macro STEP rows, registers, a_offset, b_offset
  LOAD_COLUMNS \registers, \b_offset(%rsi)
  EACH_ROW \rows, \registers, MULTIPLY_ROW, \a_offset
.endm

// One register of a row of C; the last of a row may be partial: k1. The operand that comes first is the one whose NaN stays.
.macro ACCUMULATE_WHOLE offset, pointer, c
  vmovups \offset(\pointer), %zmm24
  vaddps %zmm\c, %zmm24, %zmm\c
.endm

.macro ACCUMULATE_LAST offset, pointer, c
  vmovups \offset(\pointer), %zmm24{%k1}{z}
  vaddps %zmm\c, %zmm24, %zmm\c
.endm

.macro STORE_WHOLE offset, pointer, c
  vmovups %zmm\c, \offset(\pointer)
.endm

.macro STORE_LAST offset, pointer, c
  vmovups %zmm\c, \offset(\pointer){%k1}
.endm

// `kind` is ACCUMULATE or STORE.
.macro JOIN_ROW row, pointer, t, kind, c0, c1, c2, c3
  \kind\()_WHOLE 0, \pointer, \c0
  .ifb \c2
    \kind\()_LAST 64, \pointer, \c1
  .else
    \kind\()_WHOLE 64, \pointer, \c1
    .ifb \c3
      \kind\()_LAST 128, \pointer, \c2
    .else
      \kind\()_WHOLE 128, \pointer, \c2
      \kind\()_LAST 192, \pointer, \c3
    .endif
  .endif
.endm

// From zmm24 on: bias.
.macro ADD_BIAS_ROW row, pointer, t, argument, c0, c1, c2, c3
  vaddps %zmm24, %zmm\c0, %zmm\c0
  vaddps %zmm25, %zmm\c1, %zmm\c1
  .ifnb \c2
    vaddps %zmm26, %zmm\c2, %zmm\c2
  .endif
  .ifnb \c3
    vaddps %zmm27, %zmm\c3, %zmm\c3
  .endif
.endm

// zmm24: 0. NaN stays, being the second source.
.macro RELU_ROW row, pointer, t, argument, c0, c1, c2, c3
  vmaxps %zmm\c0, %zmm24, %zmm\c0
  vmaxps %zmm\c1, %zmm24, %zmm\c1
  .ifnb \c2
    vmaxps %zmm\c2, %zmm24, %zmm\c2
  .endif
  .ifnb \c3
    vmaxps %zmm\c3, %zmm24, %zmm\c3
  .endif
.endm

// Elements of A `step` bytes apart and rows of B one behind the other: four steps from one set of addresses, then what is left.
.macro SEGMENT rows, registers, step
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
  STEP \rows, \registers, 0, 0
  STEP \rows, \registers, \step, 64*\registers
  STEP \rows, \registers, 2*\step, 128*\registers
  STEP \rows, \registers, 3*\step, 192*\registers
  add $4*\step, %rbp
  add $256*\registers, %rsi
  cmp %rdi, %rbp
  jne 3b
4:
  mov LOCAL_REST, %rdi
  test %rdi, %rdi
  jz 1b
5:
  STEP \rows, \registers, 0, 0
  add $\step, %rbp
  add $64*\registers, %rsi
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

.macro TILE rows, registers, vectors
  .globl tidepool_tile_avx512_\rows\()x\vectors
  .hidden tidepool_tile_avx512_\rows\()x\vectors
  .type tidepool_tile_avx512_\rows\()x\vectors, @function
  .p2align 6
tidepool_tile_avx512_\rows\()x\vectors:
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
  EACH_ROW \rows, \registers, LOAD_A_POINTER
  EACH_ROW \rows, \registers, ZERO_ROW
1:
  mov LOCAL_ARGS, %rdi
  mov LOCAL_SEGMENT, %rbp
  cmp %rbp, ARG_SEGMENTS_END
  je 9f
  mov (%rbp), %rbp
  addq $8, LOCAL_SEGMENT
  cmpq $64*\registers, ARG_B_STEP
  jne 6f
  cmpq $4, ARG_A_STEP
  je 2f
  cmpq $32, ARG_A_STEP
  jne 6f
  SEGMENT \rows, \registers, 32
2:
  SEGMENT \rows, \registers, 4
6:
  mov ARG_SEGMENT_LENGTH, %rdi
  test %rdi, %rdi
  jz 1b
7:
  STEP \rows, \registers, 0, 0
  add LOCAL_A_STEP, %rbp
  add LOCAL_B_STEP, %rsi
  dec %rdi
  jnz 7b
  jmp 1b
9:
  // 8 + tail floats exist of the last register.
  mov ARG_TAIL, %rcx
  add $8, %ecx
  mov $1, %eax
  shl %cl, %eax
  dec %eax
  kmovw %eax, %k1
  mov ARG_C_ROWS, %rbp
  mov ARG_C_OFFSET, %rsi
  EACH_ROW \rows, \registers, LOAD_C_POINTER
  mov ARG_FLAGS, %rbp
  mov ARG_BIAS, %rsi
  test $1, %ebp
  jz 1f
  EACH_ROW \rows, \registers, JOIN_ROW, ACCUMULATE
1:
  test %rsi, %rsi
  jz 1f
  LOAD_COLUMNS \registers, 0(%rsi)
  EACH_ROW \rows, \registers, ADD_BIAS_ROW
1:
  test $2, %ebp
  jz 1f
  vpxord %zmm24, %zmm24, %zmm24
  EACH_ROW \rows, \registers, RELU_ROW
1:
  EACH_ROW \rows, \registers, JOIN_ROW, STORE
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
  .size tidepool_tile_avx512_\rows\()x\vectors, .-tidepool_tile_avx512_\rows\()x\vectors
.endm

  .text
.irp rows, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
  TILE \rows, 2, 4
.endr
.irp rows, 1, 2, 3, 4, 5, 6, 7, 8
  TILE \rows, 3, 6
.endr
.irp rows, 1, 2, 3, 4, 5, 6
  TILE \rows, 4, 8
.endr

#endif  // defined(__x86_64__) && defined(__ELF__)

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", @progbits
#endif
