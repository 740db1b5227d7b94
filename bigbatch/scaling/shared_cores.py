"""Computing and sending on the same cores: what an all-reduce takes from the backward pass that it runs beside.

A GPU sends while it computes and both keep their speed. Where ranks sum through their own cores (gloo), an all-reduce
takes CPU time from the computation (`AllReduceTimes.cpu_points`), and takes longer itself while that goes on
(`AllReduceTimes.busy_points`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bigbatch.scaling.profile import Profile

_SLOWEST = 0.05  # computing never stands still: the system gives it its turns


@dataclass
class SharedCores:
    """The backward pass of one rank as time goes by. Sends come in the order of time, one after the other."""

    profile: Profile
    slowed: list[tuple[float, float, float]] = field(default_factory=list)  # from, to, speed of computing between

    def when(self, progress_us: float) -> float:
        """When computing has come as far as it would have come after `progress_us` without any sending."""
        now_us = done_us = 0.0
        for start_us, end_us, speed in self.slowed:
            if done_us + (start_us - now_us) >= progress_us:
                break
            done_us += start_us - now_us
            if done_us + (end_us - start_us) * speed >= progress_us:
                return start_us + (progress_us - done_us) / speed
            done_us += (end_us - start_us) * speed
            now_us = end_us
        return now_us + progress_us - done_us

    def send(self, start_us: float, alone_us: float, busy_us: float, cpu_us: float) -> float:
        """The end of a message: `alone_us` on idle cores, `busy_us` beside computing, of which it takes `cpu_us`."""
        if not cpu_us and alone_us == busy_us:
            return start_us + alone_us
        computed_us = self.when(self.profile.backward_us)
        if start_us >= computed_us:
            return start_us + alone_us
        speed = max(_SLOWEST, 1 - cpu_us / busy_us)
        both_until_us = min(start_us + busy_us, start_us + (computed_us - start_us) / speed)
        self.slowed.append((start_us, both_until_us, speed))
        left_us = alone_us * (1 - (both_until_us - start_us) / busy_us)
        return both_until_us + left_us

    def stretched(self) -> Profile:
        """The profile with its layers as long as they were."""
        if not self.slowed:
            return self.profile
        layers, progress_us, now_us = [], 0.0, 0.0
        for layer in self.profile.layers:
            progress_us += layer.backward_us
            end_us = self.when(progress_us)
            layers.append(replace(layer, backward_us=end_us - now_us))
            now_us = end_us
        return replace(self.profile, layers=tuple(layers))
