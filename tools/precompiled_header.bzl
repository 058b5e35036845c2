"""precompiled_header: headers that many sources begin with, parsed once."""

load("//tools:rules.bzl", "ACTION_NAMES", "CcInfo", "cc_common", "find_cc_toolchain")


def _precompile(ctx, toolchain, text, compiled, dependencies):
    """Compiles `text` as the toolchain would compile a source with `copts`."""
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # As the objects of a program: position-independent in every mode but opt, unless that is switched off.
    pic = (toolchain.needs_pic_for_dynamic_libraries(feature_configuration = features) and
           ctx.var["COMPILATION_MODE"] != "opt")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = text.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts +
                             ["-x", "c++-header"],
        include_directories = dependencies.includes,
        quote_include_directories = dependencies.quote_includes,
        system_include_directories = dependencies.system_includes,
        preprocessor_defines = dependencies.defines,
        use_pic = pic,
    )
    action = ACTION_NAMES.cpp_compile
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = action,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset([text], transitive = [dependencies.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % text.short_path,
    )

def _precompiled_header_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    dependencies = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    text = ctx.actions.declare_file("_precompiled/%s.h" % ctx.label.name)

    # GCC's alone are known under this name; for clang the header is empty, so that a build with it
    # tells which sources do not include what they use.
    is_gcc = toolchain.compiler in ["compiler", "gcc"]
    headers = list(ctx.attr.headers)

    # Files of a repository that is built are inputs which those who use this do not declare.
    if not dependencies.headers.to_list():
        headers += ctx.attr.installed_headers
    ctx.actions.write(text, "".join(["#include <%s>\n" % h for h in headers if is_gcc]))
    files = [text]
    if is_gcc:
        # GCC takes a folder of that name too, and the file in it whose flags fit. cc_library takes what is called .h.
        name = text.basename + (".gch/gcc.h" if ctx.attr.among_sources else ".gch")
        compiled = ctx.actions.declare_file(name, sibling = text)
        _precompile(ctx, toolchain, text, compiled, dependencies)
        files.append(compiled)
    context = cc_common.create_compilation_context(
        headers = depset(files),
        quote_includes = depset([text.dirname]),
    )
    return [
        DefaultInfo(files = depset(files)),
        CcInfo(compilation_context = context),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    doc = """<name>.h, which includes `headers`, and what GCC makes of it.

    A target that depends on this and is compiled with `-include <name>.h` and the flags `copts` skips
    the headers' parsing. GCC compares: with other flags it reads the text instead.
    With `among_sources` a target has it in `srcs`, and `-include <bin>/<package>/_precompiled/<name>.h`.""",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    attrs = {
        "headers": attr.string_list(mandatory = True, doc = "as in #include <...>"),
        "installed_headers": attr.string_list(doc = "likewise, if `deps` are the system's"),
        "among_sources": attr.bool(doc = "for srcs of a library, whose users then know nothing of it"),
        "deps": attr.label_list(providers = [CcInfo], doc = "where they come from"),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
)
