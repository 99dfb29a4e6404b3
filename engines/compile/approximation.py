"""Compiles a model with approximations of its activations, where they pay and the accuracy budget holds.

Each place is measured in its surroundings, because engines fuse an activation with the nodes around it: what gains
alone may lose there. The places that pay are judged together as well, and fewer are taken until the budget is met.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trtnode.engines.artifact.compiled_model import CompiledModel
from trtnode.engines.artifact.files import write_model
from trtnode.engines.artifact.temporary_folder import TemporaryFolder
from trtnode.engines.backends.names import NATIVE
from trtnode.engines.build.options import CompileOptions
from trtnode.engines.build.subprocess_worker import SubprocessWorker
from trtnode.engines.compile.embedding import with_approximations
from trtnode.engines.errors import EngineError
from trtnode.engines.inputs.shape_profiles import sampled, with_best_shapes
from trtnode.engines.inputs.source import cleaned
from trtnode.engines.precision.accuracy_budget import Figures, adapted
from trtnode.engines.precision.approximations import FORMS, Place, approximate, context_of, find_places
from trtnode.engines.tuning import accuracy_jobs, timing
from trtnode.engines.tuning.candidates import is_faster
from trtnode.partitioner.compiled.trtnode import embed_engines
from trtnode.partitioner.cut.segments import values_leaving, values_read
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, Node, specs

logger = logging.getLogger(__name__)

TIMEOUT_S = 600.0

PLACE_S, WHOLE_S = 1.0, 2.0
"""Seconds that measuring one place in its surroundings takes, about, and the whole model."""

EXACT, APPROXIMATE = "exact", "approximate"

CompileFile = Callable[[pathlib.Path, CompileOptions], CompiledModel]
"""``compile_model`` without approximations."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One form of one place, measured.

    Attributes:
        place: The place.
        form: Its approximation.
        backend: The library that runs it.
        share: Part of the model's time that the place takes alone; engines that fuse it spend less.
        alone: Its time over that of the approximation, by itself.
        speed_up: The same with the nodes around it.
        pays: True if that is beyond chance.
        figures: Distance of the model's answers with this approximation alone.
        problem: Reason for which it is out of question; empty if none.
    """

    place: Place
    form: str
    backend: str
    share: float | None = None
    alone: float | None = None
    speed_up: float | None = None
    pays: bool = False
    figures: Figures | None = None
    problem: str = ""

    def as_json(self, *, taken: bool) -> dict[str, Any]:
        """Return the figures for the report."""
        ratios = {name: getattr(self, name) for name in ("share", "alone", "speed_up")}
        return {
            "node": self.place.name,
            "function": self.place.function,
            "form": self.form,
            "backend": self.backend,
            **{name: None if ratio is None else round(ratio, 4) for name, ratio in ratios.items()},
            "error": None if self.figures is None else self.figures.as_json(),
            "taken": taken,
            "why": "" if taken else self._why_not(),
        }

    def _why_not(self) -> str:
        instead = "another form is faster, or the model as a whole is not faster or not accurate enough"
        return self.problem or (instead if self.pays else "it is not faster in its surroundings")


class ApproximationSearch:
    """The places of one model, measured and judged in one folder."""

    def __init__(
        self,
        source: pathlib.Path,
        options: CompileOptions,
        *,
        folder: pathlib.Path,
        worker: SubprocessWorker,
        compile_file: CompileFile,
    ) -> None:
        """Prepare the search; arguments as of ``compile_approximated``, with a folder for its files."""
        self._source = source
        self._options = dataclasses.replace(options, approximate=False)
        self._folder = folder
        self._worker = worker
        self._compile = compile_file
        graph = self._graph()
        self._budget = adapted(options.budget, graph)
        self._evaluation = accuracy_jobs.EvaluationData(
            source=source,
            inputs=sampled(specs(graph.inputs), options.shapes),
            data=options.calibration.sampled,
            given=options.check_inputs,
        )
        self._times: dict[Any, tuple[float, float, bool, float]] = {}

    def run(self) -> CompiledModel:
        """Compile the model exactly, judge its places, and compile it with those that are taken."""
        exact = self._compile(self._source, self._options)
        graph = self._graph()
        places = find_places(graph)
        model_ms = self._model_ms(exact) if places else None
        outside = {one.node for one in exact.report.native}
        judged = [
            self._judge(graph, place, form, NATIVE if place.name in outside else exact.engine, model_ms)
            for place in places
            for form in FORMS[place.function]
        ]
        taken, figures = self._within_budget(_best_of_each(judged))
        compiled, speed_up = self._with_all(exact, taken)
        kept = taken if compiled is not exact else []
        return with_approximations(
            compiled,
            self._source,
            {
                "budget": {k: v for k, v in dataclasses.asdict(self._budget).items() if v is not None},
                "model_ms": model_ms,
                "places": [one.as_json(taken=one in kept) for one in judged],
                "together": figures and taken and {"error": figures.as_json(), "speed_up": speed_up},
            },
        )

    def _graph(self) -> Graph:
        shapes = self._options.shapes
        graph = cleaned(self._source, shapes, freeze=self._options.partition.freeze_initializers)
        return with_best_shapes(graph, shapes[0]) if shapes else graph

    def _judge(self, graph: Graph, place: Place, form: str, backend: str, model_ms: float | None) -> Judged:
        judged = Judged(place=place, form=form, backend=backend)
        try:
            alone, speed_up, pays, ms = self._time(graph, place, form, backend)
            figures = self._evaluate({place.name: form})
        except EngineError as error:
            return dataclasses.replace(judged, problem=f"it can't be measured: {error}")
        share = ms / model_ms if model_ms else None
        problem = figures.breaking(self._budget) or ""
        return dataclasses.replace(
            judged, share=share, alone=alone, speed_up=speed_up, pays=pays, figures=figures, problem=problem
        )

    def _time(self, graph: Graph, place: Place, form: str, backend: str) -> tuple[float, float, bool, float]:
        """Return the gain alone and in the surroundings, whether that is sure, and the ms of the place alone."""
        surroundings = context_of(graph, place)
        key = (place.function, form, backend, tuple(map(_looks, surroundings)))
        if key not in self._times:
            alone = self._turns(graph, place, form, backend, place.nodes)
            around = alone if len(surroundings) == len(place.nodes) else None
            around = around or self._turns(graph, place, form, backend, surroundings)
            pays = is_faster(around[APPROXIMATE], around[EXACT])
            self._times[key] = _gain(alone), _gain(around), pays, statistics.median(alone[EXACT])
        return self._times[key]

    def _turns(
        self, graph: Graph, place: Place, form: str, backend: str, nodes: Sequence[Node]
    ) -> dict[str, list[float]]:
        inputs, outputs = values_read(nodes), values_leaving(graph, nodes)
        files = {name: self._folder / f"{name}.onnx" for name in (EXACT, APPROXIMATE)}
        write_model(extract_model(graph, nodes, inputs=inputs, outputs=outputs), files[EXACT])
        part = cleaned(files[EXACT], ())
        part = approximate(part, {one.name: form for one in find_places(part) if one.result.name == place.result.name})
        write_model(embed_engines(part, (), {}), files[APPROXIMATE])
        if backend != NATIVE:
            options = CompileOptions(engine=backend, all_engines=True)
            for file in files.values():
                self._compile(file, options).save(file)
        return self._timed(files, PLACE_S)

    def _timed(self, files: Mapping[str, pathlib.Path], seconds: float) -> dict[str, list[float]]:
        turns = self._worker.call(timing.measure_models, TIMEOUT_S, files, self._options.threads, seconds)
        if turns is None:
            raise EngineError("it runs on no generated input. Give shapes of the model's inputs.")
        return turns

    def _model_ms(self, exact: CompiledModel) -> float | None:
        file = self._folder / "model.onnx"
        exact.save(file)
        try:
            return statistics.median(self._timed({EXACT: file}, WHOLE_S)[EXACT])
        except EngineError as error:
            logger.info("The model can't be timed: %s", error)
            return None

    def _evaluate(self, forms: Mapping[str, str]) -> Figures:
        file = self._write(forms)
        return self._worker.call(accuracy_jobs.measure_accuracy, TIMEOUT_S, file, self._evaluation, self._budget)

    def _write(self, forms: Mapping[str, str]) -> pathlib.Path:
        graph = cleaned(self._source, (), freeze=self._options.partition.freeze_initializers)
        graph = approximate(graph, forms)
        file = self._folder / "approximated" / self._source.name
        file.parent.mkdir(exist_ok=True)
        write_model(embed_engines(graph, (), {}), file)
        return file

    def _within_budget(self, paying: Sequence[Judged]) -> tuple[list[Judged], Figures | None]:
        """Take all that pay, without the one of the largest error as long as the budget is exceeded."""
        taken = sorted(paying, key=lambda one: one.figures.cosine if one.figures else 0.0)
        while taken:
            figures = self._evaluate({one.place.name: one.form for one in taken})
            if figures.breaking(self._budget) is None:
                return taken, figures
            taken = taken[1:]
        return [], None

    def _with_all(self, exact: CompiledModel, taken: Sequence[Judged]) -> tuple[CompiledModel, float | None]:
        """Compile with all that are taken; the exact model where that is not faster as a whole."""
        if not taken:
            return exact, None
        compiled = self._compile(self._write({one.place.name: one.form for one in taken}), self._options)
        files = {EXACT: self._folder / "model.onnx", APPROXIMATE: self._folder / "both.onnx"}
        compiled.save(files[APPROXIMATE])
        turns = self._timed(files, WHOLE_S)
        return (compiled if is_faster(turns[APPROXIMATE], turns[EXACT]) else exact), round(_gain(turns), 4)


def compile_approximated(
    source: pathlib.Path, options: CompileOptions, worker: SubprocessWorker | None, compile_file: CompileFile
) -> CompiledModel:
    """Compile a model with the approximations that pay; the report names all places with their figures.

    Args:
        source: The model.
        options: Those of the compilation. The budget is that of its precision.
        worker: Child process to measure in; None makes a temporary one.
        compile_file: Compiles a file without approximations.

    Raises:
        EngineError: As ``compile_model``.
        PartitionError: As ``compile_model``.
    """
    with contextlib.nullcontext(worker) if worker else SubprocessWorker() as child, TemporaryFolder() as folder:
        search = ApproximationSearch(source, options, folder=folder, worker=child, compile_file=compile_file)
        return search.run()


def _best_of_each(judged: Sequence[Judged]) -> list[Judged]:
    """Return the fastest form of each place that pays within the budget."""
    best: dict[str, Judged] = {}
    for one in judged:
        if one.pays and not one.problem:
            held = best.get(one.place.name)
            best[one.place.name] = one if held is None or (one.speed_up or 0) > (held.speed_up or 0) else held
    return list(best.values())


def _gain(turns: Mapping[str, Sequence[float]]) -> float:
    return statistics.median(a / b for a, b in zip(turns[EXACT], turns[APPROXIMATE], strict=True))


def _looks(node: Node) -> tuple[str, ...]:
    return node.op_type, *(str(v and v.shape) for v in (*node.op.inputs, *node.op.outputs))
