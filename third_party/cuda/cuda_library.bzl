"""cuda_library: compiles .cu files with nvcc and archives them for the C++ linker."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@local_config_cuda//:defs.bzl", "NVCC", "NVCC_FLAGS")
load("//tools:rules.bzl", "CcInfo", "cc_common", "cc_library", "find_cc_toolchain")

_FLAGS = [
    "-x",
    "cu",
    "-std=c++20",
    "-O3",
    "-lineinfo",
    "-Xcompiler=-fPIC,-Wall",
    "--expt-relaxed-constexpr",
]

def _nvcc_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    host_compiler = find_cc_toolchain(ctx).compiler_executable
    architectures = ctx.attr._architectures[BuildSettingInfo].value
    outputs = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("%s/%s.pic.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add("-ccbin", host_compiler)
        args.add_all(_FLAGS + NVCC_FLAGS + ctx.attr.copts)
        for arch in architectures:
            args.add("-gencode=arch=compute_%s,code=sm_%s" % (arch, arch))
        args.add("-gencode=arch=compute_%s,code=compute_%s" % (architectures[-1], architectures[-1]))
        args.add_all(compilation.includes, before_each = "-I")
        args.add_all(compilation.quote_includes, before_each = "-I")
        args.add_all(compilation.system_includes, before_each = "-isystem")
        args.add_all(compilation.defines, before_each = "-D")
        args.add_all(["-c", src, "-o", out])
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            outputs = [out],
            inputs = depset(ctx.files.srcs + ctx.files._nvcc_files, transitive = [compilation.headers]),
            use_default_shell_env = True,
            mnemonic = "NvccCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
        )
        outputs.append(out)
    return [DefaultInfo(files = depset(outputs))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_architectures": attr.label(default = Label("//backends/cuda:architectures")),
        "_nvcc_files": attr.label(default = Label("@local_config_cuda//:nvcc_files")),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
)

# "Wanted" and "found" are separate; either missing makes a target incompatible: `bazel build //...`
# skips it, and an explicit request is answered with the name of the constraint that is not met.
CUDA_ONLY = select({
    str(Label("//backends/cuda:usable")): [],
    str(Label("//backends/cuda:switched_off")): [
        str(Label("//third_party/cuda:not_switched_off_by_cuda_flag")),
    ],
    "//conditions:default": [str(Label("//third_party/cuda:nvcc_found_under_CUDA_PATH"))],
})

def cuda_library(name, srcs, hdrs = [], deps = [], copts = [], include_prefix = None, visibility = None, **kwargs):
    """A cc_library whose sources are CUDA. Skipped where CUDA is not usable.

    Add `alwayslink = True` where static initialisers register kernels.

    Args:
      name: the library.
      srcs: .cu files, compiled as C++20 for --//backends/cuda:architectures.
      hdrs: headers that C++ code may include too.
      deps: C++ or CUDA libraries; the CUDA runtime is added.
      copts: further flags for nvcc.
      include_prefix: as in cc_library.
      visibility: as in cc_library.
      **kwargs: passed to cc_library.
    """
    headers = "_%s_headers" % name
    objects = "_%s_nvcc" % name

    # A target of its own, so that the sources see the headers under their prefix too.
    cc_library(
        name = headers,
        hdrs = hdrs,
        include_prefix = include_prefix,
        deps = deps + [str(Label("@local_config_cuda//:cudart"))],
        target_compatible_with = CUDA_ONLY,
        visibility = ["//visibility:private"],
    )
    _nvcc_objects(
        name = objects,
        srcs = srcs,
        deps = [headers],
        copts = copts,
        target_compatible_with = CUDA_ONLY,
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [objects],
        deps = [headers],
        # The static CUDA runtime must be in each binary once, and never in a shared library.
        linkstatic = True,
        target_compatible_with = CUDA_ONLY,
        visibility = visibility,
        **kwargs
    )
