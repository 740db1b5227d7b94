"""Random samples that only have a shape."""

from __future__ import annotations

import torch

from bigbatch import datasets, parts


def test_images_and_text_have_the_given_shape_and_are_the_same_each_time():
    images = {"name": "synthetic", "sample_shape": [3, 5, 7], "classes": 4, "samples": 6}
    first, again = (datasets.load(parts.configure("datasets", images)) for _ in range(2))
    assert first.train.fetch(torch.arange(6))[0].shape == (6, 3, 5, 7)
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert (first.task, first.hash) == ("classify", again.hash)
    text = datasets.load(parts.configure("datasets", images | {"sample_shape": [9]}))
    assert (text.task, text.sample_shape, text.train.sequential) == ("language", (9,), True)
    assert text.train.as_streams(2).fetch(torch.arange(2))[0].shape == (2, 9)


def test_files_of_earlier_versions_can_be_read():
    options = {"sample_shape": [4], "classes": 3, "samples": 2}
    old = parts.configure("datasets", {"name": "bigbatch.scaling.measured.made_up:dataset", **options})
    assert old == parts.configure("datasets", {"name": "synthetic", **options})
