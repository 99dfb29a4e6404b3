"""Sections of servable.yaml about state that the server keeps from one request of a sequence to the next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trtnode.serving.schema.fields import ConfigPath, Count, ListOf, Mebibytes, Seconds, Section, Size


class StateConfig(Section):
    """An input whose value is an output of the request before."""

    input: str
    """Its name. Clients neither see nor send it."""
    output: str
    """The name of the output. Clients see it if `interface` lists it."""
    initial: Annotated[Literal["zeros"] | ConfigPath, Field(union_mode="left_to_right")] = "zeros"
    """Its value at the first request of a sequence: zeros, or an .npz file with an array of the input's name."""
    shape: ListOf[Size] | None = None
    """Its shape then, with -1 for what the model says; null takes all of it from the model. Caches begin empty."""


class SequencesConfig(Section):
    """Sequences of a model with `state`. To make room, the one that is idle for longest ends."""

    max: Count = 1024
    """Sequences at the same time."""
    idle_s: Seconds = 60
    """Time without a request after which a sequence ends; and for which it goes on after its model is replaced."""
    memory_mb: Mebibytes = 1024
    """Memory of their state."""
    append: ListOf[str] = ()
    """Inputs that get what the requests of a sequence have given so far, joined in the last axis: with the
    `attention_mask` of a decoder, clients send that of their own tokens alone."""
