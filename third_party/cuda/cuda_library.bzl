"""cuda_library: compiles .cu files with nvcc and archives them for the C++ linker."""

load("@local_config_cuda//:defs.bzl", "NVCC")

def _nvcc_objects_impl(ctx):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    outputs = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file("%s/%s.pic.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()
        args.add_all(["-x", "cu", "-std=c++20", "-O3", "-Xcompiler=-fPIC,-Wall", "--expt-relaxed-constexpr"])
        for arch in ctx.attr.architectures:
            args.add("-gencode=arch=compute_%s,code=sm_%s" % (arch, arch))
        args.add("-gencode=arch=compute_%s,code=compute_%s" % (ctx.attr.architectures[-1], ctx.attr.architectures[-1]))
        args.add_all(compilation.includes, before_each = "-I")
        args.add_all(compilation.quote_includes, before_each = "-I")
        args.add_all(compilation.system_includes, before_each = "-isystem")
        args.add_all(compilation.defines, before_each = "-D")
        args.add_all(["-c", src, "-o", out])
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            outputs = [out],
            inputs = depset(ctx.files.srcs, transitive = [compilation.headers]),
            use_default_shell_env = True,
            mnemonic = "NvccCompile",
            progress_message = "Compiling %s with nvcc" % src.short_path,
        )
        outputs.append(out)
    return [DefaultInfo(files = depset(outputs))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    fragments = ["cpp"],
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "architectures": attr.string_list(default = ["90"]),
    },
)

# "Wanted" and "found" are separate; either missing makes a target incompatible: `bazel build //...`
# skips it and an explicit request says why.
CUDA_ONLY = select({
    str(Label("//backends/cuda:usable")): [],
    "//conditions:default": ["@platforms//:incompatible"],
})

def cuda_library(name, srcs, hdrs = [], deps = [], architectures = ["90"], **kwargs):
    """A cc_library whose sources are CUDA.

    Args:
      name: the library.
      srcs: .cu files.
      hdrs: headers.
      deps: C++ or CUDA libraries.
      architectures: compute capabilities without the dot; the last one is also kept as PTX.
      **kwargs: passed to cc_library.
    """
    deps = deps + ["@local_config_cuda//:cudart"]
    objects = "_%s_nvcc" % name
    _nvcc_objects(
        name = objects,
        srcs = srcs,
        deps = deps,
        architectures = architectures,
        target_compatible_with = CUDA_ONLY,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [objects],
        hdrs = hdrs,
        deps = deps,
        linkstatic = True,
        target_compatible_with = CUDA_ONLY,
        **kwargs
    )
