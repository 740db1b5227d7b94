"""The whole pipeline on real CIFAR-10 with a published ResNet-20."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bigbatch import datasets, filters, parts
from bigbatch.cli import main
from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.datasets import sha256
from bigbatch.datasets.reading.images import InMemoryImages
from bigbatch.filters import network

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights" / "resnet20-12fca82f.th"
MODEL = {"name": "resnet_cifar", "depth": 20}
NORMALISED = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not WEIGHTS.exists(), reason="the published weights are not beside the repository"),
]


@pytest.fixture
def ten_thousand():
    """The first file of CIFAR-10, so that a map takes a minute at most."""
    whole = datasets.load(parts.configure("datasets", {"name": "cifar10", **NORMALISED}))
    images, labels = whole.train.images[:10_000], whole.train.labels[:10_000]
    train = InMemoryImages(images, labels, whole.train.augment)
    return replace(whole, train=train, hash=sha256(images, labels))


@pytest.mark.timeout(900)
def test_ten_thousand_images_are_filtered_and_mistakes_of_the_network_go_first(ten_thousand):
    kept = network(WEIGHTS, ten_thousand, model=MODEL, drop=0.1)
    labels = ten_thousand.train.labels
    shares = torch.stack([(~kept.mask[labels == index]).float().mean() for index in range(10)])
    assert ((shares > 0.05) & (shares <= 0.1005)).all()
    wrong = torch.from_numpy(kept.arrays["prediction"]) != labels
    assert wrong.float().mean() < 0.05  # it learned these images
    assert wrong[~kept.mask].float().mean() > 3 * wrong.float().mean()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_of_cifar10_is_filtered_and_its_row_of_table_one_is_printed(tmp_path, capsys):
    settings = ['model={"name": "resnet_cifar", "depth": 20}']
    settings += [f"dataset.{name}={values}" for name, values in NORMALISED.items()]
    out = tmp_path / "kept.npz"
    with pytest.raises(SystemExit, match="0"):
        main(["filter", "cifar10", "--out", str(out), "--network", str(WEIGHTS), *(f"--set={s}" for s in settings)])
    saved = filters.load(out)
    counts = saved.manifest.counts
    assert 44_995 <= counts.kept <= 45_300
    assert all(4_500 <= row.kept <= 4_550 for row in counts.by_class.values())
    printed = capsys.readouterr().out
    assert f"{100 * counts['kept'] / 50_000:.2f} % or {counts['kept']:,} samples kept" in printed
    assert np.isfinite(saved.arrays["map"]).all()
    # at one fixed eps: the map is in the cache, and the answer is not what the paper had with other networks
    paper = filter_dataset(
        FilterRequest(
            "cifar10", out=tmp_path / "paper.npz", network=str(WEIGHTS), settings=[*settings, "mode=paper"], quiet=True
        )
    )
    assert 0.05 < paper["counts"]["dropped"] / 50_000 < 0.9
