"""How loops are compiled, for each set of instruction_set.h."""

load("//tools:build_defs.bzl", "tidepool_cc_library")

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

def loop_libraries(name, hdrs, deps = [], srcs = None, copts = LOOP_COPTS, avx512 = True):
    """Loops and what chooses between their sets: <name>, of its sources and those of <name>_avx2 and <name>_avx512.

    Args:
      name: the tables' library; of <name>.cc, <name>_avx2.cc and so on.
      hdrs: the header, and what is included by each set's source. They are <name>_header.
      deps: of the headers.
      srcs: <name>.cc, which chooses, and <name>_portable.cc, where they are not said.
      copts: of each.
      avx512: whether there are loops for it.
    """
    header = ":%s_header" % name
    tidepool_cc_library(name = name + "_header", hdrs = hdrs, deps = deps)
    sets = {"avx2": AVX2_COPTS}
    if avx512:
        sets["avx512"] = AVX512_COPTS
    for kind, flags in sets.items():
        tidepool_cc_library(
            name = "%s_%s" % (name, kind),
            srcs = ["%s_%s.cc" % (name, kind)],
            copts = copts + flags,
            deps = [header],
        )
    tidepool_cc_library(
        name = name,
        srcs = srcs or [name + ".cc", name + "_portable.cc"],
        copts = copts,
        deps = [":%s_%s" % (name, kind) for kind in sets] + [header, "//backends/cpu:instruction_set"],
    )
