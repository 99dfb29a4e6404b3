"""Command-line options about shapes, and about how TensorRT builds."""

from __future__ import annotations

import argparse

from engines import BuildOptions
from engines.options import TensorRtOptions
from engines.profiles import Profile, ShapeRange
from serving.errors import InvalidOptionError


def shapes_from(arguments: argparse.Namespace) -> tuple[Profile, ...]:
    """Translate ``--shape``: the first one of each input is its shape in the first profile, and so on.

    Raises:
        InvalidOptionError: One has another form, or its shapes are not in order.
    """
    profiles: list[dict[str, ShapeRange]] = []
    for text in arguments.shape:
        name, _, shapes = text.rpartition(":")
        if not name:
            raise InvalidOptionError("--shape", f"{text!r} should be NAME:SHAPE or NAME:MIN,OPT,MAX")
        try:
            shape_range = ShapeRange.parse(shapes)
        except ValueError as error:
            raise InvalidOptionError("--shape", str(error)) from None
        if all(name in profile for profile in profiles):
            profiles.append({})
        next(profile for profile in profiles if name not in profile)[name] = shape_range
    return tuple(profiles)


def build_from(arguments: argparse.Namespace) -> BuildOptions:
    """Translate the options of TensorRT's builder.

    Raises:
        InvalidOptionError: Two exclude each other.
    """
    if arguments.strip_plan and arguments.version_compatible:
        problem = "later releases can't give an engine its weights. Leave out --version-compatible or this"
        raise InvalidOptionError("--strip-plan", problem)
    if arguments.strip_plan and arguments.strip_fallback:
        problem = "engines would take their weights from what --strip-fallback leaves out. Leave out one of the two"
        raise InvalidOptionError("--strip-plan", problem)
    return BuildOptions(
        tensorrt=TensorRtOptions(
            workspace_mb=arguments.workspace_mb,
            optimization_level=arguments.optimization_level,
            hardware_compatible=arguments.hardware_compatible,
            version_compatible=arguments.version_compatible,
            sparse=arguments.sparse,
            cuda_graphs=not arguments.no_cuda_graphs,
            strip_plan=arguments.strip_plan,
        )
    )
