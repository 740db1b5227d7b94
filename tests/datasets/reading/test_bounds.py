"""Memory is bounded by what a file may hold, not by what it claims."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from small import small_run

from bigbatch import datasets, filters, parts
from bigbatch.datasets.reading.download import read_decompressed
from bigbatch.errors import Problem
from bigbatch.sweeps import SweepConfig


@contextmanager
def at_most(megabytes: int):
    """Python's and numpy's allocations within the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()


def test_a_label_of_millions_makes_no_millions_of_classes(tmp_path):
    np.savez(tmp_path / "x.npz", labels=np.array([0, 2**26]))
    with at_most(10), pytest.raises(Problem, match=r"the labels in .* go up to 67108864: number them from 0"):
        datasets.load(parts.configure("datasets", {"name": "arrays", "path": str(tmp_path / "x.npz")}))


def test_a_small_gz_of_much_data_is_not_unpacked(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(100 << 20)))
    with at_most(10), pytest.raises(Problem, match=r"x\.gz has more than 1,000,000 bytes"):
        read_decompressed(tmp_path / "x.gz", 1_000_000)


@pytest.mark.parametrize(
    "load", [filters.load, lambda path: parts.configure("filters", {"name": "kept", "path": str(path)})]
)
def test_a_small_npz_of_large_arrays_is_not_unpacked(tmp_path, load):
    np.savez_compressed(tmp_path / "x.npz", mask=np.zeros(200 << 20, bool))
    with at_most(10), pytest.raises(Problem, match=r"would unpack to 209,7\d\d,\d\d\d: save it uncompressed"):
        load(tmp_path / "x.npz")


def test_a_large_picture_is_refused_by_its_header(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split / "a").mkdir(parents=True)
        picture = io.BytesIO()
        Image.new("1", (13_000, 13_000)).save(picture, "png")
        (tmp_path / split / "a" / "x.png").write_bytes(picture.getvalue())
    dataset = datasets.load(parts.configure("datasets", {"name": "imagefolder", "folder": str(tmp_path), "workers": 0}))
    import torch

    with at_most(10), pytest.raises(Problem, match=r"x\.png is not a complete image \(13000 x 13000 pixels are more"):
        dataset.test.fetch(torch.tensor([0]))


def test_a_sweep_of_a_billion_runs_is_refused_before_they_are_listed():
    config = SweepConfig.build(small_run(), seeds=1_000_000_000)
    with at_most(10), pytest.raises(Problem, match="this sweep has 1,000,000,000 runs, more than 100,000: use fewer"):
        config.points()
