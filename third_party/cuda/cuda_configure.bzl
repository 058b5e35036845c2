"""@local_config_cuda: what the machine's CUDA toolkit offers. The repository always exists."""

_ABSENT = """
filegroup(name = "nvcc_files")
cc_library(name = "cudart")
cc_library(name = "cublas")
"""

_PRESENT = """
# What nvcc runs and reads. It is run where it lies, and these are its inputs: another version of any compiles anew.
filegroup(
    name = "nvcc_files",
    srcs = glob([
        "bin/cudafe++",
        "bin/crt/**",
        "bin/fatbinary",
        "bin/nvcc",
        "bin/nvcc.profile",
        "bin/nvlink",
        "bin/ptxas",
        "include/**",
        "nvvm/bin/cicc",
        "nvvm/libdevice/**",
    ], allow_empty = True),
)
cc_library(
    name = "cudart",
    srcs = ["lib/libcudart_static.a"],
    # What C++ code includes; nvcc knows its own folders.
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**", "include/nv/**"]),
    includes = ["include"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
)
cc_library(
    name = "cublas",
    linkopts = ["-L%s/lib64", "-Wl,-rpath,%s/lib64", "-lcublas", "-lcublasLt"],
    deps = [":cudart"],
)
"""

_HEADER = """load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])
bool_setting(name = "found", build_setting_default = %r)
config_setting(name = "toolkit_found", flag_values = {":found": "True"})
"""

# Kernels for several types are large, and much alike: an eighth is left. nvcc has it since 12.8.
_COMPRESSED = "--compress-mode=size"

def _flags(ctx, nvcc):
    known = ctx.execute([nvcc, "--help"])
    return [_COMPRESSED] if known.return_code == 0 and "--compress-mode" in known.stdout else []

def _cuda_configure_impl(ctx):
    root = ctx.os.environ.get("CUDA_PATH", "/usr/local/cuda")
    found = ctx.path(root + "/bin/nvcc").exists
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    nvcc = root + "/bin/nvcc" if found else ""
    ctx.file("defs.bzl", "NVCC = %r\nNVCC_FLAGS = %r\n" % (nvcc, _flags(ctx, nvcc) if found else []))
    body = _HEADER % found
    if found:
        for folder in ["bin", "include", "nvvm"]:
            ctx.symlink(root + "/" + folder, folder)
        ctx.symlink(root + "/lib64/libcudart_static.a", "lib/libcudart_static.a")
        body += _PRESENT % (root, root)
    else:
        body += _ABSENT
    ctx.file("BUILD.bazel", body)

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    doc = "Absence of CUDA is data, not an error: `toolkit_found` says whether nvcc is under $CUDA_PATH.",
    local = True,
    configure = True,
    environ = ["CUDA_PATH"],
)
