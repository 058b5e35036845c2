"""The macros all C++ targets of this repository are made with."""

# Flags of our own sources only: they never reach a dependent's targets.
TIDEPOOL_COPTS = [
    "-std=c++20",
    "-Wall",
    "-Wextra",
    "-Wno-sign-compare",
    "-Wno-missing-field-initializers",
    "-fno-math-errno",
]

_FEATURES = ["layering_check", "parse_headers"]

def _include_prefix():
    package = native.package_name()
    return "tidepool/" + package if package else "tidepool"

def tidepool_cc_library(name, srcs = [], hdrs = [], copts = [], **kwargs):
    """A library whose headers are included as "tidepool/<package>/<header>"."""
    native.cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = TIDEPOOL_COPTS + copts,
        include_prefix = _include_prefix(),
        features = _FEATURES,
        **kwargs
    )

def tidepool_kernel_library(name, srcs, **kwargs):
    """A library that registers kernels from static initialisers; the linker must not drop it."""
    tidepool_cc_library(name = name, srcs = srcs, alwayslink = True, linkstatic = True, **kwargs)

def tidepool_cc_test(name, srcs = None, deps = [], copts = [], size = "small", **kwargs):
    """A GoogleTest, named x_test and made of x_test.cc unless said otherwise."""
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = TIDEPOOL_COPTS + copts,
        size = size,
        linkstatic = True,
        deps = deps + ["@com_google_googletest//:gtest_main"],
        **kwargs
    )

def tidepool_cc_binary(name, srcs = None, copts = [], **kwargs):
    native.cc_binary(
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
    native.sh_test(
        name = name + "_runs_test",
        size = "medium",
        srcs = ["//tools:run_benchmark_once.sh"],
        args = ["$(location :%s)" % name],
        data = [":" + name],
    )
