"""How loops are compiled, for each set of instruction_set.h."""

# gcc vectorises loops well at -O3 only; without trapping math a select becomes a blend. Functions of vectors are inlined
# everywhere: how they would be passed does not matter.
LOOP_COPTS = [
    "-O3",
    "-fno-trapping-math",
    "-Wno-psabi",
]

# InstructionSet::kAvx2.
AVX2_COPTS = select({
    "@platforms//cpu:x86_64": [
        "-mavx2",
        "-mfma",
        "-mf16c",
    ],
    "//conditions:default": [],
})

# InstructionSet::kAvx512. gcc prefers half of its width otherwise, and gcc 12 takes its own intrinsics for uninitialised.
AVX512_COPTS = select({
    "@platforms//cpu:x86_64": [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mfma",
        "-mf16c",
        "-mprefer-vector-width=512",
        "-Wno-maybe-uninitialized",
        "-Wno-uninitialized",
    ],
    "//conditions:default": [],
})
