"""The headers that C++ targets are compiled with, for tests that run the compiler."""

load("//tools:rules.bzl", "CcInfo")

def _compiled_headers_impl(ctx):
    headers = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps]
    files = depset(transitive = headers)
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

compiled_headers = rule(
    implementation = _compiled_headers_impl,
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
)
