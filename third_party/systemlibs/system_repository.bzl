"""A repository whose targets are libraries that the system already has installed."""

_LOAD = "load(\"@rules_cc//cc:defs.bzl\", \"cc_library\")\n"

_LIBRARY = """
cc_library(
    name = {name},
    linkopts = {linkopts},
)
"""

def _system_repository_impl(ctx):
    for header in ctx.attr.probe_headers:
        if not ctx.path("/usr/include/" + header).exists:
            fail("@%s needs /usr/include/%s; run: apt-get install %s" %
                 (ctx.name, header, ctx.attr.debian_package))
    ctx.file("WORKSPACE.bazel", "workspace(name = %r)\n" % ctx.name)
    packages = {"": []}
    for target, linkopts in ctx.attr.libraries.items():
        package, _, name = target.rpartition(":")
        packages.setdefault(package, []).append((name, linkopts))
    for package, targets in packages.items():
        text = _LOAD if targets else ""
        text += "package(default_visibility = [\"//visibility:public\"])\n"
        for name, linkopts in targets:
            text += _LIBRARY.format(name = repr(name), linkopts = repr(linkopts))
        if package == "":
            text += ctx.attr.extra_build
        ctx.file((package + "/" if package else "") + "BUILD.bazel", text)
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)

system_repository = repository_rule(
    implementation = _system_repository_impl,
    doc = """Defines one cc_library per entry of `libraries` ("package:name" -> linker options).

    Headers come from /usr/include, which the compiler searches anyway. A missing package stops the
    build with the command that installs it.""",
    local = True,
    attrs = {
        "libraries": attr.string_list_dict(),
        "extra_build": attr.string(doc = "text appended to the root BUILD file"),
        "files": attr.string_dict(doc = "path -> content of further files"),
        "probe_headers": attr.string_list(),
        "debian_package": attr.string(),
    },
)
