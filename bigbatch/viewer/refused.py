"""A request that cannot be done: a sentence for the person, and HTTP's number for the browser."""

from __future__ import annotations

from bigbatch.errors import Problem


class Refused(Problem):
    """Answered as `{"problem": ...}`."""

    def __init__(self, sentence: str, status: int = 422) -> None:
        super().__init__(sentence)
        self.status = status
