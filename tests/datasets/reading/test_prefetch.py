"""Real worker processes on real files, and every way in which they can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from prefetch_parts import Numbers, numbers

from bigbatch import parts, rng
from bigbatch.datasets import Samples, load
from bigbatch.datasets.reading.prefetch import FetchRequest, Prefetcher
from bigbatch.errors import Problem


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    root = tmp_path_factory.mktemp("pictures")
    for part in ("train", "val"):
        for name, suffix in (("cat", "png"), ("dog", "jpg")):
            (root / part / name).mkdir(parents=True)
            for number in range(6):
                pixels = rng.integers(256, number, np.arange(24 * 20 * 3)).astype(np.uint8).reshape(24, 20, 3)
                Image.fromarray(pixels).save(root / part / name / f"{number}.{suffix}")
    options = {"name": "imagefolder", "folder": str(root), "size": 8, "resize": 10}
    return load(parts.configure("datasets", options)).train


def test_workers_give_what_this_process_gives(pictures: Samples) -> None:
    requests = [
        FetchRequest.of(piece, seed=3, epoch=epoch)
        for epoch in (0, 1, None)
        for piece in rng.permutation(12, 1).split(5)
    ]
    with Prefetcher(pictures, workers=2) as prefetcher:
        prefetcher.prefetch(requests)
        for request in requests:
            inputs, labels = prefetcher.get(request)
            expected = pictures.fetch(torch.tensor(request.indices), seed=3, epoch=request.epoch)
            assert torch.equal(inputs, expected[0])
            assert torch.equal(labels, expected[1])


def test_any_order_any_split_announced_or_not() -> None:
    with Prefetcher(Numbers(), workers=3) as prefetcher:
        prefetcher.prefetch([numbers(0, 10), numbers(10, 20), numbers(20, 30), numbers(0, 10)])
        for request in (numbers(20, 30), numbers(500, 502), numbers(0, 10), numbers(10, 20), numbers(0, 10)):
            assert prefetcher.get(request)[1].tolist() == list(request.indices)
        prefetcher.prefetch([numbers(30, 40, epoch=1), numbers(40, 50, epoch=1)])
        prefetcher.prefetch([numbers(40, 50, epoch=2)])  # the plan has changed: the rest is dropped
        assert prefetcher.get(numbers(40, 50, epoch=2))[0][0].item() == 2040
        assert prefetcher.get(numbers(7, 8))[0].tolist() == [[7.0]]  # fewer samples than workers
        assert prefetcher.get(numbers(0, 0))[0].shape == (0, 1)


def test_sets_in_memory_are_fetched_on_the_spot() -> None:
    samples = Numbers(lazy=False)
    prefetcher = Prefetcher(samples, workers=4)
    prefetcher.prefetch([numbers(0, 5), numbers(5, 9)])
    assert samples.fetched == []
    assert prefetcher.get(numbers(5, 9))[1].tolist() == [5, 6, 7, 8]
    assert samples.fetched == [[5, 6, 7, 8]]


def test_the_number_of_workers_is_given_or_one_per_core(pictures: Samples) -> None:
    assert [Prefetcher(pictures, workers=count).worker_count for count in (3, 0)] == [3, 0]
    assert Prefetcher(pictures).worker_count >= 1
    inputs, _ = Prefetcher(pictures, workers=0).get(numbers(0, 4))  # no worker: in this process
    assert torch.equal(inputs, pictures.fetch(torch.arange(4))[0])


def test_a_failure_is_raised_here_and_the_workers_go_on() -> None:
    with Prefetcher(Numbers(), workers=2) as prefetcher:
        with pytest.raises(RuntimeError, match=r"(?s)Traceback.*ValueError: the number of the beast"):
            prefetcher.get(numbers(660, 667))
        with pytest.raises(Problem, match=r"^sample 667 is broken: replace it$"):
            prefetcher.get(numbers(667, 668))
        assert prefetcher.get(numbers(1, 4))[1].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("deadly", "cause"), [(668, "was killed by SIGKILL"), (669, "ended with exit code 3")])
def test_a_worker_that_dies_is_named_and_not_waited_for(deadly: int, cause: str) -> None:
    with Prefetcher(Numbers(), workers=2) as prefetcher:
        prefetcher.get(numbers(0, 4))
        pid = prefetcher._workers[0].process.pid
        with pytest.raises(Problem, match=rf"data worker \S+ \(process {pid}\) {cause}"):
            prefetcher.get(numbers(deadly, deadly + 1))
        assert prefetcher.get(numbers(0, 4))[1].tolist() == [0, 1, 2, 3]  # with new workers


def test_a_worker_killed_between_two_requests_is_named() -> None:
    with Prefetcher(Numbers(), workers=2) as prefetcher:
        prefetcher.get(numbers(0, 4))
        process = prefetcher._workers[1].process
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(Problem, match=rf"process {process.pid}\) was killed by SIGKILL"):
            prefetcher.get(numbers(4, 8))


def test_close_ends_the_workers() -> None:
    prefetcher = Prefetcher(Numbers(), workers=2)
    prefetcher.get(numbers(0, 4))
    processes = [worker.process for worker in prefetcher._workers]
    assert all(process.is_alive() for process in processes)
    prefetcher.close()
    assert not any(process.is_alive() for process in processes)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal
        from bigbatch.datasets.reading.prefetch import Prefetcher
        from prefetch_parts import Numbers, numbers

        if __name__ == "__main__":
            prefetcher = Prefetcher(Numbers(), workers=2)
            prefetcher.get(numbers(0, 4))
            print("ready", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    environment = dict(os.environ)
    # workers inherit this pipe: it ends only when the last of them has ended
    parent = subprocess.run([sys.executable, script], env=environment, stdout=subprocess.PIPE, timeout=60, check=False)
    assert parent.stdout == b"ready\n"
    assert parent.returncode == -signal.SIGKILL
