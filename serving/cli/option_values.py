"""Values of command-line options: shapes, settings of TensorRT's builder, and precision."""

from __future__ import annotations

import argparse
import pathlib

from trtnode.engines.artifact.cache_folder import default_cache_folder
from trtnode.engines.backends.build_options import BuildOptions, TensorRtOptions
from trtnode.engines.backends.shape_range import Profile, ShapeRange
from trtnode.engines.precision.accuracy_budget import AccuracyBudget
from trtnode.engines.precision.options import Calibration, PrecisionOptions
from trtnode.engines.precision.rules import PrecisionRule
from trtnode.serving.errors import InvalidOptionError

CACHE_BYTES = 20 * 10**9
"""Largest size of the engine cache."""


def cache_folder_from(arguments: argparse.Namespace) -> pathlib.Path | None:
    """Translate ``--cache``; None where it isn't given and this user has no home folder.

    Raises:
        InvalidOptionError: It begins with the home folder of a user who has none.
    """
    if arguments.cache is None:
        return default_cache_folder()
    try:
        given: pathlib.Path = arguments.cache.expanduser()
    except RuntimeError:
        raise InvalidOptionError("--cache", f"there is no home folder {arguments.cache.parts[0]} here") from None
    return given


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
            targets=arguments.target,
        )
    )


def precision_from(arguments: argparse.Namespace) -> PrecisionOptions:
    """Translate command-line arguments.

    Raises:
        InvalidOptionError: A rule has another form.
    """
    return PrecisionOptions(
        asked=arguments.precision,
        rules=tuple(_rule(text) for text in arguments.precision_rule),
        calibration=Calibration.of(
            arguments.calibration, method=arguments.calibration_method, allow_few=arguments.allow_few_samples
        ),
        budget=AccuracyBudget.of(
            min_cosine=arguments.min_cosine,
            min_top1_agreement=arguments.min_top1_agreement,
            max_abs=arguments.max_abs,
            metric=arguments.metric,
        ),
    )


def _rule(text: str) -> PrecisionRule:
    try:
        return PrecisionRule.parse(text)
    except ValueError as error:
        raise InvalidOptionError("--precision-rule", str(error)) from None
