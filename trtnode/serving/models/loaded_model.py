"""A model that is open: what reads its requests, runs them, and writes their answers."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from trtnode.engines.model_facts import ModelFacts
from trtnode.engines.runtime.executor import Executable
from trtnode.serving.batching.axis_check import dependent_rows, no_batch_axis
from trtnode.serving.batching.batcher import DynamicBatcher
from trtnode.serving.batching.instance_pool import InstancePool
from trtnode.serving.batching.length_batches import LengthBatches
from trtnode.serving.batching.lengths import Lengths, lengths_of
from trtnode.serving.batching.padding_check import PaddingCheck
from trtnode.serving.batching.queued_request import Then
from trtnode.serving.batching.request_options import RequestOptions
from trtnode.serving.executables.interface import Run, ServedExecutable
from trtnode.serving.executables.stateful import JoinedSequences, StatefulExecutable
from trtnode.serving.executables.tiled import TiledExecutable
from trtnode.serving.models.image_decoder import ImageDecoder
from trtnode.serving.models.interface_check import folder_of, keeping_state, log_unlisted, served_signature
from trtnode.serving.models.pipelines import image_decoders
from trtnode.serving.models.warmup import warm_lengths, warm_up
from trtnode.serving.protocol.request_cache import RequestCache
from trtnode.serving.protocol.wire_signature import WireSignature, WireTensor
from trtnode.serving.schema.model import BatchingConfig, ModelConfig
from trtnode.serving.sequences.step import Step
from trtnode.serving.sequences.table import Turn
from trtnode.serving.telemetry.request_stats import Durations, ModelCounts
from trtnode.serving.text.text_model import TextModel, text_model
from trtnode.serving.threads.cpu_affinity import placed
from trtnode.serving.triton.conversion import triton_config
from trtnode.serving.triton.wire import Reshapes, as_clients_see

logger = logging.getLogger(__name__)

ONE_BY_ONE = "Model %r: requests run one by one, without batching: %s"
"""Logged where batching is configured, and rows can't be joined."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that answers requests. Thread-safe.

    Attributes:
        config: How it is served; of several variants, that of the one that was chosen.
        executable: Runs it.
        runner: Runs it for requests, in their order.
        cache: Reads its requests and writes its responses.
        all_outputs: The outputs of a request that asks for all; None where the executable has more.
        images: Decodes encoded images, by input.
        text: Tokenizes texts; None if it takes none.
        reshapes: Between the shapes that clients see and those of the model; None where they are the same.
        steps: Runs requests of sequences, of which each has the state of the one before; None for other models.
    """

    config: ModelConfig
    executable: ServedExecutable
    runner: InstancePool | DynamicBatcher
    cache: RequestCache
    all_outputs: Sequence[WireTensor] | None
    images: Mapping[str, ImageDecoder]
    text: TextModel | None
    reshapes: Reshapes | None
    steps: StatefulExecutable | None = None

    @property
    def batching(self) -> BatchingConfig | None:
        """The configuration of batching; None if requests run one by one."""
        return self.config.batching if isinstance(self.runner, DynamicBatcher) else None

    def decode(self, feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Return the arrays of a request with its encoded images decoded, and its texts tokenized.

        Raises:
            InvalidRequestError: An image is damaged, too large, or of another size than others; or a text is at fault.
        """
        if self.text is not None:
            return self.text.tokenized(self.cache.signature.inputs[self.text.text_input].label, feeds)
        if not self.images:
            return feeds
        inputs = self.cache.signature.inputs
        decoded = {name: one.decode(inputs[name].label, feeds[name].tolist()) for name, one in self.images.items()}
        return {**feeds, **decoded}

    def submit(
        self,
        feeds: Mapping[str, np.ndarray],
        outputs: Sequence[WireTensor],
        options: RequestOptions,
        durations: Durations,
        then: Then,
        turn: Turn | None = None,
    ) -> None:
        """Run the model when an instance is free, and the turn in its sequence has come.

        Args:
            feeds: Arrays that fit the signature.
            outputs: Some of the signature.
            options: What the request asks of the queue.
            durations: Gets the time in the queue and of the run.
            then: Gets at least the arrays of ``outputs``. Or it gets InvalidInputError if the model's own check refuses
                an input, QueueTimeoutError, CancelledRequestError, or what the run raised.
            turn: In its sequence; None for a model without state.

        Raises:
            InvalidRequestError: There are more rows than a batch may have.
            UnavailableError: The queue is full.
        """
        if self.reshapes is not None:
            feeds, then = self.reshapes.taken(feeds), self.reshapes.passing_on(then)
        names = None if outputs is self.all_outputs else [tensor.name for tensor in outputs]
        if turn is None or self.steps is None:
            self.runner.submit(feeds, names, options, durations, then)
        else:
            step = Step(turn, self.steps, feeds, then, options.on_cancel)
            step.submit(lambda given: self.runner.submit(given, names, options, durations, step.end))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelOpener:
    """Makes loaded models of executables.

    Attributes:
        config: How the model is served.
        counts: Gets what happens to requests.
        version: Decimal.
        message_bytes: The most bytes of a message.
        interim: True if it answers natively only until its engines are built.
        on_loss: Called with a sentence when its engines can't run any more.
    """

    config: ModelConfig
    counts: ModelCounts
    version: str
    message_bytes: int
    interim: bool
    on_loss: Callable[[str], None]

    def open(self, executable: ServedExecutable) -> LoadedModel:
        """Check an executable against the configuration, and warm it up. It is closed if that fails.

        Raises:
            ServingError: They don't fit each other.
            PipelineError: The pipeline doesn't fit the model.
            EngineError: The model fails.
        """
        try:
            return self._open(executable)
        except BaseException:
            executable.close()
            raise

    def _open(self, executable: ServedExecutable) -> LoadedModel:
        config = self.config
        executable = keeping_state(config, executable)
        steps = None
        if isinstance(executable, StatefulExecutable):
            steps = self._steps(executable)
            for line in executable.states.sentences():
                logger.info("Model %r: %s", config.name, line)
        signature = served_signature(config, executable)
        seen = as_clients_see(signature, triton_config(config), folder_of(config))
        if config.interface is None:
            log_unlisted(signature, executable.inputs, executable.outputs)
        images = image_decoders(config, executable.inputs[0].name) if config.preprocess and executable.inputs else {}
        text = text_model(config, executable.inputs, executable.outputs)
        lengths = self._unlike_lengths(executable, signature, text)
        # Requests fit the signature once they are read; only what images and texts became is checked again.
        run: Run = placed(executable.run if (images or text) and steps is None else (steps or executable).run_checked)
        runner = self._runner(executable, signature, run if lengths is None else lengths.padding(run), lengths, steps)
        batching = config.batching if isinstance(runner, DynamicBatcher) else None
        warm_up(executable, signature, config, batching)
        if lengths is not None:
            warm_lengths(executable, signature, lengths, config, batching)
        self._finish(executable)
        variant = answering_variant(executable.facts)
        wire = dataclasses.replace(seen, message_bytes=self.message_bytes).taking_images(images)
        if text is not None:
            wire = wire.taking_texts(text.text_input, text.tokenizer.inputs, pairs=text.tokenizer.config.pair)
            wire = wire.naming_classes(text.output, text.labels)
        return LoadedModel(
            config=config.of_variant(next(v for v in config.variants if v.label == variant)) if variant else config,
            executable=executable,
            runner=runner,
            cache=RequestCache(wire, self.version, variant=variant, is_batched=batching is not None),
            all_outputs=wire.outputs if len(signature.outputs) == len(executable.outputs) else None,
            images=images,
            text=text,
            reshapes=Reshapes.of(triton_config(config)),
            steps=steps,
        )

    def _finish(self, executable: ServedExecutable) -> None:
        """Keep the kernels that the warm-up has compiled; from now on, fallbacks and losses are counted and logged."""
        inner = executable.model if isinstance(executable, TiledExecutable | StatefulExecutable) else executable
        model = cast(Executable, inner)
        model.keep_kernels()
        model.on_fallback = self.counts.add_fallback
        model.on_small = self.counts.add_small
        model.on_loss = self.on_loss
        if self.config.nan is not None:
            model.nan_natively = self.config.nan == "native"

    def _runner(
        self,
        executable: ServedExecutable,
        signature: WireSignature,
        run: Run,
        lengths: LengthBatches | None,
        steps: StatefulExecutable | None,
    ) -> InstancePool | DynamicBatcher:
        batching, instances = self.config.batching, self.config.instances
        if batching is None or (steps is not None and not steps.joins):
            return InstancePool(run, instances, self.counts)
        problem = steps is None and (no_batch_axis(signature) or dependent_rows(executable.run, signature))
        if problem:
            logger.warning(ONE_BY_ONE, self.config.name, problem)
            return InstancePool(run, instances, self.counts)
        inputs, runs_apart = signature.required, (steps or executable).needs_native
        if steps is not None:
            inputs |= {*steps.state_names, *(control.spec.name for control in steps.controls)}
        return DynamicBatcher(run, inputs, batching, instances, self.counts, runs_apart, lengths)

    def _steps(self, executable: StatefulExecutable) -> StatefulExecutable:
        """Return what runs requests of sequences: of several together, where rows and states may be joined."""
        if self.config.batching is None:
            return executable
        joined = JoinedSequences.of(executable)
        problem = joined if isinstance(joined, str) else None
        if isinstance(joined, JoinedSequences):
            signature = WireSignature.of(self.config.name, joined.all_inputs, joined.all_outputs)
            problem = no_batch_axis(signature) or dependent_rows(joined.run_checked, signature, unless_proved=True)
        if isinstance(joined, str) or problem:
            logger.warning(ONE_BY_ONE, self.config.name, problem)
            return executable
        return joined

    def _unlike_lengths(
        self, executable: ServedExecutable, signature: WireSignature, text: TextModel | None
    ) -> LengthBatches | None:
        """Return what pads requests; None where it isn't configured, or answers would depend on padding."""
        name, config = self.config.name, self.config.lengths
        if config is None or self.interim:
            return None
        joins = self.config.batching is not None and no_batch_axis(signature) is None
        lengths = lengths_of(None if config == "auto" else config, executable.inputs)
        if isinstance(lengths, Lengths):
            lengths = PaddingCheck(executable, signature, lengths, joins=joins).run()
        if isinstance(lengths, Lengths) and text is not None and config == "auto":
            lengths = lengths.up_to(text.tokenizer.config.max_length)
        if isinstance(lengths, Lengths):
            axes = ", ".join(f"axis {axis} of {tensor!r}" for tensor, axis in lengths.axes.items())
            logger.info("Model %r: requests are padded to %s, on %s", name, list(lengths.buckets), axes)
            batching = self.config.batching
            return LengthBatches(lengths, self.counts, batching.max_batch_tokens if batching is not None else None)
        logger.warning("Model %r: requests are not padded, whatever their length: %s", name, lengths)
        return None


def answering_variant(facts: ModelFacts | None) -> str:
    """Return the name of the variant that answers; empty for a model without variants."""
    return next((str(one["name"]) for one in (facts.variants if facts else ()) if one["answers"]), "")
