"""Computing and communicating on the same cores: what an all-reduce takes from the backward pass that it overlaps.

A GPU communicates while it computes, and neither slows the other. Where ranks sum on their own cores (gloo), an
all-reduce takes CPU time from the computation (`AllReduceTimes.cpu_points`), and takes longer itself meanwhile
(`AllReduceTimes.busy_points`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bigbatch.scaling.profile import Profile

_LEAST_SPEED = 0.05  # computing never stops: the scheduler gives it its turns


@dataclass
class SharedCores:
    """The backward pass of one rank over time. Messages are added in the order of time and do not overlap."""

    profile: Profile
    slowdowns: list[tuple[float, float, float]] = field(default_factory=list)  # start, end, speed of computing

    def time_of_progress(self, progress_us: float) -> float:
        """Return when computing has done what takes `progress_us` without communication."""
        now_us = done_us = 0.0
        for start_us, end_us, speed in self.slowdowns:
            if done_us + (start_us - now_us) >= progress_us:
                break
            done_us += start_us - now_us
            if done_us + (end_us - start_us) * speed >= progress_us:
                return start_us + (progress_us - done_us) / speed
            done_us += (end_us - start_us) * speed
            now_us = end_us
        return now_us + progress_us - done_us

    def add_message(self, start_us: float, alone_us: float, busy_us: float, cpu_us: float) -> float:
        """Return the end of a message: `alone_us` on idle cores; `busy_us` beside computing, which loses `cpu_us`."""
        if not cpu_us and alone_us == busy_us:
            return start_us + alone_us
        computed_us = self.time_of_progress(self.profile.backward_us)
        if start_us >= computed_us:
            return start_us + alone_us
        speed = max(_LEAST_SPEED, 1 - cpu_us / busy_us)
        both_until_us = min(start_us + busy_us, start_us + (computed_us - start_us) / speed)
        self.slowdowns.append((start_us, both_until_us, speed))
        left_us = alone_us * (1 - (both_until_us - start_us) / busy_us)
        return both_until_us + left_us

    def slowed_profile(self) -> Profile:
        """Return the profile with the time that each layer took."""
        if not self.slowdowns:
            return self.profile
        layers, progress_us, now_us = [], 0.0, 0.0
        for layer in self.profile.layers:
            progress_us += layer.backward_us
            end_us = self.time_of_progress(progress_us)
            layers.append(replace(layer, backward_us=end_us - now_us))
            now_us = end_us
        return replace(self.profile, layers=tuple(layers))
