"""The order of one engine: everything that its model, its key and its envelope follow from."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable

from trtnode.engines.artifact.cache import builder_version, engine_key
from trtnode.engines.artifact.envelope import UNCHECKED, Device, Envelope, current_platform
from trtnode.engines.artifact.files import sha256_of_file
from trtnode.engines.backends import library_jobs
from trtnode.engines.backends.build_environment import build_environment
from trtnode.engines.backends.build_options import BuildOptions
from trtnode.engines.backends.protocols import Backend
from trtnode.engines.backends.shape_range import Profile, profile_as_json
from trtnode.engines.build.context import NOBODY, TIMEOUT_S, CompileContext
from trtnode.engines.build.whole_model import WholeModels
from trtnode.engines.errors import UnknownShapeError
from trtnode.engines.inputs.shape_profiles import PropagatedShapes, follow, segment_profile, unknown_inputs
from trtnode.engines.precision.rewriting import FLOAT32, Setting, Transformed, transform
from trtnode.partitioner.compiled.trtnode import segment_hash
from trtnode.partitioner.cut.options import PartitionOptions
from trtnode.partitioner.cut.segments import Segment
from trtnode.partitioner.graph.extraction import extract_model
from trtnode.partitioner.graph.view import Graph, specs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BuildOrder:
    """One engine to find or to build.

    Attributes:
        graph: The cleaned model.
        segment: Its nodes that the engine runs.
        setting: The precisions that they compute in.
        backend: The engine library.
        options: Options of the build.
        segment_sha256: Hash of the segment without its name. The name changes when another segment is demoted, and the
            engine stays the same.
        checked_by: ``native`` or ``reference``, by what the engine is compared with; ``nobody`` where none can run.
        identify: Returns the library's release and the device that it builds for, as the worker tells them: to import a
            library takes long.
    """

    graph: Graph
    segment: Segment
    setting: Setting
    backend: Backend
    options: BuildOptions
    segment_sha256: str
    checked_by: str
    identify: Callable[[], tuple[str, Device]]

    @property
    def key(self) -> str:
        """Key of the engine in the cache."""
        bindings = specs((*self.segment.inputs, *self.segment.outputs))
        properties = self.backend.build_properties(self.options) | self._index_options()
        return engine_key(
            segment=self.segment_sha256,
            shapes=repr([(s.name, s.dtype, s.shape) for s in bindings]),
            options=json.dumps([self.options.precision, properties], sort_keys=True),
            profiles=json.dumps([profile_as_json(profile) for profile in self.options.profiles], sort_keys=True),
            precision=self.setting.key,
            judge=self.checked_by,  # the parts' names are hashed as well: a new name would miss every cached engine
            **build_environment(self.backend, self.options),
        )

    @property
    def is_float32(self) -> bool:
        """True if the engine is the segment's first one, which computes in float32."""
        return self.setting == FLOAT32

    @property
    def types_are_written(self) -> bool:
        """True if nodes compute in less because their model's types say so."""
        return not self.backend.precision_support().typed.isdisjoint(self.setting.nodes)

    def transformed(self) -> Transformed:
        """Return the segment's model in its precisions."""
        segment = self.segment
        extracted = extract_model(
            self.graph,
            segment.nodes,
            inputs=segment.inputs,
            outputs=segment.outputs,
            weights_outside=self.is_float32 and self.backend.reads_links,
        )
        return transform(extracted, segment, self.setting, self.backend)

    def _index_options(self) -> dict[str, str]:
        return self.backend.index_options(self.segment.nodes, self.segment.inputs)

    def options_for(self, transformed: Transformed) -> BuildOptions:
        """Return the options with the precision that the library computes the transformed model's floats in."""
        return dataclasses.replace(self.options, precision=transformed.floats)

    def envelope(self, engine: pathlib.Path, transformed: Transformed) -> Envelope:
        """Return the envelope of the built engine, not signed.

        Args:
            engine: File of the engine bytes.
            transformed: The model that it was built from.
        """
        backend, segment, setting = self.backend, self.segment, self.setting
        version, device = self.identify()
        properties = backend.build_properties(self.options_for(transformed))
        properties |= self._index_options()
        if self.checked_by == NOBODY:
            properties[UNCHECKED] = "1"
        return Envelope(
            backend=backend.name,
            backend_version=version,
            platform=current_platform(),
            device=device,
            precision_asked=setting.asked,
            precision_effective=transformed.effective,
            options=properties,
            inputs=specs(segment.inputs),
            outputs=specs(segment.outputs),
            engine_sha256=sha256_of_file(engine),
            segment_sha256=self.segment_sha256,
            builder_version=builder_version(),
            calibration_sha256=setting.ranges_sha256,
            node_precisions=setting.by_node(segment),
            profiles=tuple(map(profile_as_json, self.options.profiles)),
        )


class BuildOrders:
    """Makes the orders of one compilation."""

    def __init__(self, context: CompileContext) -> None:
        self._context = context
        self._known_shapes: dict[Graph, list[PropagatedShapes]] = {}
        self._asked: set[Graph] = set()
        self._identity: tuple[str, Device] | None = None

    def make(self, graph: Graph, segment: Segment, setting: Setting) -> BuildOrder:
        """Make the order of one engine.

        Raises:
            UnknownShapeError: The library builds for given shapes, and they are not known.
        """
        context, backend = self._context, self._context.backend
        options = dataclasses.replace(context.options.build, profiles=self._profiles(graph, segment))
        if context.cache and not backend.on_cpu:
            file = context.cache.timing_file(
                f"{backend.name}-{backend.version()}-{backend.target_device(options).name}"
            )
            options = dataclasses.replace(options, timing_cache=file)
        return BuildOrder(
            graph=graph,
            segment=segment,
            setting=setting,
            backend=backend,
            options=options,
            segment_sha256=segment_hash(graph, dataclasses.replace(segment, name="")),
            checked_by=context.checked_by,
            identify=self._identify,
        )

    def _identify(self) -> tuple[str, Device]:
        if self._identity is None:
            context = self._context
            self._identity = context.worker.call(
                library_jobs.identify, TIMEOUT_S, context.engine, context.options.build
            )
        return self._identity

    def _profiles(self, graph: Graph, segment: Segment) -> tuple[Profile, ...]:
        """Shapes of a segment's inputs to build for; none where the library needs none."""
        backend, shapes = self._context.backend, self._context.options.shapes
        if not backend.needs_shapes:
            return ()
        dynamic = [spec.name for spec in specs(segment.inputs) if spec.static_shape is None]
        if dynamic and not shapes and any(spec.static_shape is None for spec in specs(graph.inputs)):
            raise UnknownShapeError(
                dynamic,
                f"{backend.name} builds for given shapes, and that of {dynamic[0]!r} is not fixed. Give those of the "
                "model's inputs: --shapes NAME:MIN,OPT,MAX, or shapes in servable.yaml.",
            )
        if not (dynamic or shapes):
            return ()
        profiles = shapes or ({},)
        if graph not in self._known_shapes:
            self._known_shapes[graph] = [follow(graph, profile) for profile in profiles]
        known = self._known_shapes[graph]
        if any(unknown_inputs(segment, one) for one in known) and graph not in self._asked:
            self._asked.add(graph)
            known = self._known_shapes[graph] = [follow(graph, profile, self._complete) for profile in profiles]
        return tuple(segment_profile(segment, one, n) for n, one in enumerate(known))

    def _complete(self, graph: Graph) -> Graph:
        """Complete the shapes of a graph whose inputs have fixed ones: by the library, then by native execution."""
        context = self._context
        allow = context.options.partition.allow
        library = WholeModels(context.backend, context.cache, context.worker)
        graph = library.read(graph, functools.partial(context.backend.label, allow=allow), PartitionOptions()).graph
        return context.complete_natively(graph)
