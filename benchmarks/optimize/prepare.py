"""Prepares the subjects of each part: writes the files without rewrites and with them."""

from __future__ import annotations

import dataclasses
import fnmatch
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import onnx

from benchmarks.engine_coverage.collection import find_cases
from benchmarks.optimize.operators import operator_models
from benchmarks.optimize.subject import DESCRIPTION, PLAIN_LIBRARIES, WITH, WITHOUT, Subject, keep_subject
from trtnode.bench.networks.catalogue import NETWORKS, TRAINING_FORMS, network_file, sample_inputs
from trtnode.engines.backends.cpu_features import has_wide_vectors
from trtnode.engines.backends.names import REWRITE_NAMES
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.compile.compiler import compile_model
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.samples import Feeds, find_samples
from trtnode.engines.onnxruntime.session import NativeSession
from trtnode.engines.runtime.plan_loading import signature_of
from trtnode.partitioner.errors import PartitionError
from trtnode.partitioner.graph.view import Graph
from trtnode.partitioner.model.loading import load_model
from trtnode.partitioner.passes.rewrites.rules import RULES

SOURCES = "sources"
"""Folder of the models that are built or unpacked."""

LEAST_GAINS = {"mobileone-s0": 3.0, "repvgg-a0": 1.08}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Subjects to prepare, and their folder.

    Attributes:
        root: Folder that keeps all.
        models: Folder of models.
        only: Glob over names.
        threads: Of all engines; None for the libraries' choice.
    """

    root: pathlib.Path
    models: pathlib.Path
    only: str
    threads: int | None


def prepare(part: str, given: Given) -> None:
    """Prepare the subjects of a part that aren't there yet, and say on standard error which can't be."""
    (given.root / SOURCES).mkdir(parents=True, exist_ok=True)
    PARTS[part](given)


def _operators(given: Given) -> None:
    rules = {rule.name: rule.on(wide=has_wide_vectors()) for rule in RULES}
    for name, pattern, source, rewritten, places in operator_models():
        if not fnmatch.fnmatch(name, given.only):
            continue
        feeds = {source.graph.input[0].name: np.random.default_rng(0).standard_normal(pattern.shape, np.float32) * 3}
        for engine in PLAIN_LIBRARIES:
            subject = Subject(
                part="operators",
                name=name,
                engine=engine,
                source="",
                compiled=False,
                rules={pattern.rule: places},
                expected=rules[pattern.rule].pays(engine),
                bar=pattern.bars.get(engine) if name.endswith("alone") else None,
            )
            folder = subject.folder(given.root)
            folder.mkdir(parents=True, exist_ok=True)
            onnx.save(source, folder / f"{WITHOUT}.onnx")
            onnx.save(rewritten, folder / f"{WITH}.onnx")
            keep_subject(folder, subject, feeds)


def _training_forms(given: Given) -> None:
    _compile_all("training", TRAINING_FORMS, given)


def _networks(given: Given) -> None:
    _compile_all("networks", NETWORKS, given)


def _compile_all(part: str, names: Iterable[str], given: Given) -> None:
    for name in names:
        if fnmatch.fnmatch(name, given.only):
            file = network_file(name, given.root / SOURCES)
            _compile(part, name, file, sample_inputs(name, 1, 0), given)


def _models(given: Given) -> None:
    for number, case in enumerate(find_cases(given.models, given.only)):
        folder = given.root / SOURCES / str(number)
        folder.mkdir(exist_ok=True)
        file = case.unpacked(folder)
        try:
            feeds = case.request() or _generated(file)
        except (EngineError, PartitionError):
            continue
        if feeds:
            _compile("models", case.name, file, feeds, given)


def _generated(file: pathlib.Path) -> Feeds | None:
    samples = find_samples(NativeSession(file, name=str(file)), signature_of(Graph.of(load_model(file))).inputs, None)
    return samples[0] if samples else None


def _compile(part: str, name: str, file: pathlib.Path, feeds: Feeds, given: Given) -> None:
    """Compile a model for each engine, with rewrites; where there are any, without them too."""
    for engine in PLAIN_LIBRARIES:
        options = CompileOptions(engine=engine, threads=given.threads, all_engines=True)
        bar = LEAST_GAINS.get(name) if part == "training" else None
        subject = Subject(
            part=part, name=name, engine=engine, source=str(file.resolve()), compiled=True, rules={}, bar=bar
        )
        folder = subject.folder(given.root)
        if (folder / DESCRIPTION).exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        try:
            compiled = compile_model(file, options)
            rules = {one.rule: len(one.nodes) for one in compiled.report.rewrites}
            if rules:
                compiled.save(folder / f"{WITH}.onnx")
                bare = dataclasses.replace(options, no_optimize=REWRITE_NAMES)
                compile_model(file, bare).save(folder / f"{WITHOUT}.onnx")
        except (EngineError, PartitionError) as error:
            print(f"{name}, {engine}: left out: {error}", file=sys.stderr, flush=True)
            continue
        keep_subject(folder, dataclasses.replace(subject, rules=rules), feeds)


PARTS: Mapping[str, Callable[[Given], None]] = {
    "operators": _operators,
    "training": _training_forms,
    "networks": _networks,
    "models": _models,
}
