"""@libtorch: PyTorch's C++ library, a peer of benchmarks. The repository always exists."""

_LIBS = "/usr/lib/%s-linux-gnu/libtorch_cpu.so"

_HEADER = """load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cc//cc:defs.bzl", "cc_library")
package(default_visibility = ["//visibility:public"])
bool_setting(name = "found", build_setting_default = %r)
config_setting(name = "library_found", flag_values = {":found": "True"})
"""

_LIBRARY = """
cc_library(
    name = "torch",
    hdrs = glob(%r),
    includes = %r,
    linkopts = %r,
)
"""

def _paths(ctx):
    """Folders to search for headers (name -> path) and linker options; None where there is none."""
    root = ctx.os.environ.get("LIBTORCH_PATH")
    if root:
        if not ctx.path(root + "/lib/libtorch_cpu.so").exists:
            return None
        headers = {"include": "include", "api_include": "include/torch/csrc/api/include"}
        return (
            {name: root + "/" + path for name, path in headers.items()},
            ["-L%s/lib" % root, "-Wl,-rpath,%s/lib" % root],
        )

    # Debian's own; /usr/include is searched anyway.
    headers = "/usr/include/torch/csrc/api/include"
    libraries = [_LIBS % cpu for cpu in ["x86_64", "aarch64"]]
    found = [library for library in libraries if ctx.path(library).exists]
    if not found or not ctx.path(headers + "/torch/torch.h").exists:
        return None
    return {"api_include": headers}, []

def _libtorch_configure_impl(ctx):
    paths = _paths(ctx)
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    body = _HEADER % (paths != None)
    if paths:
        headers, linkopts = paths
        for name, path in headers.items():
            ctx.symlink(path, name)

        # The linker drops libtorch_cpu otherwise: its operators register themselves.
        linkopts = linkopts + ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-Wl,--as-needed"]
        body += _LIBRARY % ([name + "/**" for name in headers], headers.keys(), linkopts)
    else:
        body += "cc_library(name = \"torch\")\n"
    ctx.file("BUILD.bazel", body)

libtorch_configure = repository_rule(
    implementation = _libtorch_configure_impl,
    doc = """Absence of libtorch is data, not an error: `library_found` says whether it is there.

    $LIBTORCH_PATH is a folder with include/ and lib/ (an unpacked release, or the folder `torch` of an
    installed Python package built with the C++11 ABI); without it Debian's libtorch-dev is looked for.""",
    local = True,
    configure = True,
    environ = ["LIBTORCH_PATH"],
)
