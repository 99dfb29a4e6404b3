"""The section of a model that says how many replicas a Ray cluster gives it."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from trtnode.serving.schema.fields import LONGEST_S, Cores, Section


class ScalingConfig(Section):
    """Replicas of a model on a Ray cluster."""

    replicas: Cores = 1
    """The number of replicas, each in a process of its own; with `max`, the number to begin with."""
    min: Cores | None = None
    """The least number, where requests decide; null for `replicas`."""
    max: Cores | None = None
    """The greatest number, where requests decide; null for always `replicas`."""
    target_ongoing_requests: float = Field(default=2, gt=0, le=1e6, allow_inf_nan=False)
    """Requests in a replica at a time, on average, that the number of replicas follows."""
    upscale_delay_s: float = Field(default=30, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time for which requests ask for more replicas before there are more."""
    downscale_delay_s: float = Field(default=600, ge=0, le=LONGEST_S, allow_inf_nan=False)
    """The time for which requests ask for fewer replicas before there are fewer."""
    cpus: float = Field(default=1, ge=0, le=4096, allow_inf_nan=False)
    """Cores that Ray reserves for a replica, and threads of one execution unless `threads` says otherwise."""
    gpus: float = Field(default=0, ge=0, le=4096, allow_inf_nan=False)
    """GPUs that Ray reserves for a replica."""

    @property
    def least(self) -> int:
        """The number of replicas that are always there."""
        return self.replicas if self.max is None or self.min is None else self.min

    @property
    def most(self) -> int:
        """The number of replicas that there are at most."""
        return self.max or self.replicas

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the fault of each setting that contradicts another one."""
        if self.min is not None and self.max is None:
            yield "min", "has no effect without max; add it or leave this out"
        elif self.least > self.replicas:
            yield "min", f"is more than replicas ({self.replicas}); raise that or lower this"
        elif self.most < self.replicas:
            yield "max", f"is less than replicas ({self.replicas}); lower that or raise this"
