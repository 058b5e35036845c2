"""cuda_kernel_library and cuda_test: one list of sources, built for devices and for the emulation."""

load("//third_party/cuda:cuda_library.bzl", "CUDA_ONLY", "cuda_library")
load("//tools:build_defs.bzl", "TIDEPOOL_COPTS", "TIDEPOOL_OPTIMIZATION", "tidepool_cc_test")
load("//tools:rules.bzl", "cc_library")

_EMULATION = str(Label("//backends/cuda/emulation"))
_CUDART = str(Label("@local_config_cuda//:cudart"))

def _include_prefix():
    return "tidepool/" + native.package_name()

def _emulated(label):
    if ":" not in label:
        fail("cuda_deps name their target after a colon; %r does not" % label)
    return label + "_emulated"

def cuda_kernel_library(
        name,
        srcs = [],
        hdrs = [],
        deps = [],
        cuda_deps = [],
        cuda_only_deps = [],
        emulated_deps = [],
        textual_hdrs = [],
        nvcc_copts = [],
        alwayslink = False,
        **kwargs):
    """Makes `name` (CUDA; skipped where it is not usable) and `name_emulated` (testonly, anywhere).

    Args:
      name: of the library for devices.
      srcs: .cu files (nvcc; the C++ compiler for the emulation) and .cc files (always the latter).
      hdrs: headers, included as "tidepool/<package>/<header>".
      deps: plain C++ libraries, for both.
      cuda_deps: libraries made with this macro, named with a colon: each gets its own kind.
      cuda_only_deps: for devices only.
      emulated_deps: for the emulation only.
      textual_hdrs: files that .cu files include by their path in the repository.
      nvcc_copts: further flags for nvcc.
      alwayslink: where static initialisers register kernels.
      **kwargs: visibility and the like, for both.
    """
    cu = [src for src in srcs if src.endswith(".cu")]
    cc = [src for src in srcs if not src.endswith(".cu")]

    # For devices: nvcc's part is a library of its own, which the C++ part depends on.
    parts = []
    if cu:
        cuda_library(
            name = name + "_cu",
            srcs = cu,
            hdrs = hdrs + textual_hdrs,
            deps = deps + cuda_deps + cuda_only_deps,
            include_prefix = _include_prefix(),
            copts = nvcc_copts,
            alwayslink = alwayslink,
            **kwargs
        )
        parts = [name + "_cu"]
    cc_library(
        name = name,
        srcs = cc,
        hdrs = hdrs,
        copts = TIDEPOOL_COPTS + TIDEPOOL_OPTIMIZATION,
        include_prefix = _include_prefix(),
        deps = deps + cuda_deps + cuda_only_deps + parts + [_CUDART],
        linkstatic = True,
        alwayslink = alwayslink,
        target_compatible_with = CUDA_ONLY,
        **kwargs
    )

    # For the emulation each .cu is included by a C++ file.
    wrappers = []
    for src in cu:
        wrapper = "%s_emulated/%s.cc" % (name, src[:-3])
        native.genrule(
            name = "%s_emulated_%s" % (name, src[:-3].replace("/", "_")),
            outs = [wrapper],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), src),
            visibility = ["//visibility:private"],
        )
        wrappers.append(wrapper)
    cc_library(
        name = name + "_emulated",
        testonly = True,
        srcs = cc + wrappers,
        hdrs = hdrs,
        # Compiling costs more than running. The pragma is nvcc's unroll.
        copts = TIDEPOOL_COPTS + ["-O1", "-Wno-unknown-pragmas"],
        include_prefix = _include_prefix(),
        textual_hdrs = cu + textual_hdrs,
        deps = deps + [_emulated(dep) for dep in cuda_deps] + emulated_deps + [_EMULATION],
        linkstatic = True,
        alwayslink = alwayslink,
        **kwargs
    )

def cuda_test(name, srcs = None, deps = [], cuda_deps = [], **kwargs):
    """Makes `name` (on devices; its cases skip themselves without one) and `name_emulated`.

    Args:
      name: of the test; made of <name>.cc unless srcs says otherwise.
      srcs: .cc files.
      deps: as of cuda_kernel_library.
      cuda_deps: as of cuda_kernel_library.
      **kwargs: passed to tidepool_cc_test.
    """
    tidepool_cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        deps = deps + cuda_deps + [_CUDART],
        target_compatible_with = CUDA_ONLY,
        **kwargs
    )
    tidepool_cc_test(
        name = name + "_emulated",
        srcs = srcs or [name + ".cc"],
        copts = ["-Wno-unknown-pragmas"],
        deps = deps + [_emulated(dep) for dep in cuda_deps] + [_EMULATION],
        **kwargs
    )
