"""The macros all C++ targets of this repository are made with."""

load("//tools:precompiled_header.bzl", "precompiled_header")
load("//tools:rules.bzl", "cc_binary", "cc_library", "cc_test", "sh_test")

# Flags of our own sources only: they never reach a dependent's targets.
TIDEPOOL_COPTS = [
    "-std=c++20",
    "-Wall",
    "-Wextra",
    "-Wno-sign-compare",
    "-Wno-missing-field-initializers",
    "-fno-math-errno",
]

# Tests are compiled once and run for moments: optimising them takes a third of their compilation.
# Bazel's toolchain asks for _FORTIFY_SOURCE, which warns without optimisation.
_UNOPTIMIZED = [
    "-O0",
    "-U_FORTIFY_SOURCE",
]

# GoogleTest's headers, which take longer to parse than most tests.
_GOOGLETEST = str(Label("//tools/testing:googletest_headers"))

# What most libraries include, which takes longer to parse than most of them. It is in a library's srcs: as one of its deps it would
# be an input of whatever depends on the library.
_LIBRARY_HEADERS = Label("//tools:library_headers")
_INCLUDE_LIBRARY_HEADERS = [
    "-include",
    "/".join(["$(GENDIR)"] + [part for part in [_LIBRARY_HEADERS.workspace_root] if part] + ["tools/_precompiled/library_headers.h"]),
]

# Bazel's default mode, fastbuild, optimises nothing, and a dependent who does not ask for more would have kernels at a third of their
# speed. Our libraries are optimised in it; dbg is for who debugs them.
TIDEPOOL_OPTIMIZATION = select({
    str(Label("//tools:fastbuild")): ["-O2"],
    "//conditions:default": [],
})

_FEATURES = ["layering_check", "parse_headers"]

def _include_prefix():
    package = native.package_name()
    return "tidepool/" + package if package else "tidepool"

def tidepool_cc_library(name, srcs = [], hdrs = [], copts = [], **kwargs):
    """A library whose headers are included as "tidepool/<package>/<header>"."""
    if not copts and type(srcs) == "list" and [source for source in srcs if source.endswith(".cc")]:
        # With flags of its own the compiler would read the text.
        copts = _INCLUDE_LIBRARY_HEADERS
        srcs = srcs + [str(_LIBRARY_HEADERS)]
    cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = TIDEPOOL_COPTS + copts + TIDEPOOL_OPTIMIZATION,
        include_prefix = _include_prefix(),
        features = _FEATURES,
        linkstatic = True,
        **kwargs
    )

def tidepool_kernel_library(name, srcs, **kwargs):
    """A library that registers kernels from static initialisers; the linker must not drop it."""
    tidepool_cc_library(name = name, srcs = srcs, alwayslink = True, **kwargs)

def tidepool_test_headers(name, **kwargs):
    """A precompiled_header for tests that are not optimised."""
    precompiled_header(name = name, copts = TIDEPOOL_COPTS + _UNOPTIMIZED, **kwargs)

def tidepool_library_headers(name, **kwargs):
    """A precompiled_header for libraries."""
    precompiled_header(name = name, copts = TIDEPOOL_COPTS + TIDEPOOL_OPTIMIZATION, among_sources = True, **kwargs)

def tidepool_cc_test_cases(name, srcs, deps = [], copts = [], **kwargs):
    """Test cases that several tests link: compiled once, as a test is."""
    cc_library(
        name = name,
        srcs = srcs,
        testonly = True,
        alwayslink = True,
        copts = TIDEPOOL_COPTS + _UNOPTIMIZED + ["-include", "googletest_headers.h"] + copts,
        linkstatic = True,
        deps = deps + [_GOOGLETEST, "@com_google_googletest//:gtest"],
        **kwargs
    )

def tidepool_cc_test_variants(name, variants, deps, srcs = None, size = "small", **kwargs):
    """A GoogleTest compiled and linked once and run as several tests, each a process of its own.

    Args:
      name: of the program; made of <name>.cc unless said otherwise.
      variants: from a test's name to its environment.
      deps: beside GoogleTest.
      srcs: of the program.
      size: of each test, as Bazel defines it.
      **kwargs: of the program.
    """
    tidepool_cc_test_cases(name = name + "_cases", srcs = srcs or [name + ".cc"], deps = deps)
    cc_binary(
        name = name,
        testonly = True,
        linkstatic = True,
        deps = [":" + name + "_cases", "@com_google_googletest//:gtest_main"],
        **kwargs
    )
    for test, environment in variants.items():
        sh_test(
            name = test,
            size = size,
            srcs = ["//tools/testing:run_as_test.sh"],
            args = ["$(location :%s)" % name],
            data = [":" + name],
            env = environment,
        )

def tidepool_cc_test(name, srcs = None, deps = [], copts = [], size = "small", optimize = False, **kwargs):
    """A GoogleTest, named x_test and made of x_test.cc unless said otherwise.

    Args:
      name: of the target.
      srcs: of the test; x_test.cc when not given. Empty: its cases are in `deps` (tidepool_cc_test_cases).
      deps: beside GoogleTest.
      copts: further flags.
      size: as Bazel defines it.
      optimize: for tests that compute themselves (models, oracles in loops, races by the million).
      **kwargs: of cc_test.
    """
    if not optimize:
        copts = _UNOPTIMIZED + ["-include", "googletest_headers.h"] + copts
        deps = deps + [_GOOGLETEST]
    cc_test(
        name = name,
        srcs = srcs if srcs != None else [name + ".cc"],
        copts = TIDEPOOL_COPTS + copts,
        size = size,
        linkstatic = True,
        deps = deps + ["@com_google_googletest//:gtest_main"],
        **kwargs
    )

def tidepool_fuzz_targets(name, srcs, deps = [], copts = [], size = "medium", **kwargs):
    """Fuzz targets (memory/testing/fuzzing/fuzz_target.h): the test <name>_test, and <name> for clang's libFuzzer.

    Args:
      name: "fuzz".
      srcs: with TIDEPOOL_FUZZ_TARGET.
      deps: beside GoogleTest and the target's own library.
      copts: of the sources.
      size: of the test.
      **kwargs: of the test.
    """
    targets = Label("//memory/testing/fuzzing:fuzz_target")
    tidepool_cc_test_cases(name = name + "_targets", srcs = srcs, copts = copts, deps = deps + [targets])
    tidepool_cc_test(name = name + "_test", srcs = [], size = size, deps = [":" + name + "_targets"], **kwargs)
    cc_binary(
        name = name,
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        linkstatic = True,
        tags = ["manual"],
        deps = [":" + name + "_targets", Label("//memory/testing/fuzzing:libfuzzer")],
    )

def tidepool_cc_binary(name, srcs = None, copts = [], **kwargs):
    cc_binary(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = TIDEPOOL_COPTS + copts,
        linkstatic = True,
        **kwargs
    )

def tidepool_cc_benchmark(name, srcs = None, deps = [], **kwargs):
    """A Google Benchmark binary, and a test that runs every benchmark once so that none can rot."""
    tidepool_cc_binary(
        name = name,
        srcs = srcs,
        testonly = True,
        tags = ["benchmark"],
        deps = deps + ["@com_github_google_benchmark//:benchmark_main"],
        **kwargs
    )
    sh_test(
        name = name + "_runs_test",
        size = "medium",
        srcs = ["//tools:run_benchmark_once.sh"],
        args = ["$(location :%s)" % name],
        data = [":" + name],
    )
