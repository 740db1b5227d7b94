"""Features and principal components: one or two ranks, killed or not, from networks and from files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import filter_parts
import numpy as np
import pytest
import torch
from torch import nn

from bigbatch import filters, models, parts
from bigbatch.artifacts.folder import Folder
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.images import Augment, InMemoryImages
from bigbatch.errors import Problem
from bigbatch.filters.pipeline import cache, features, neighbours, pca, source
from bigbatch.output.progress import show_progress
from bigbatch.run import Run
from bigbatch.training.loop import train

HELPERS = Path(__file__).parents[2] / "helpers"
FAST = ["reducer=none", "components=5", "drop=0.05"]


def extracted(module, dataset, precision="float32", **options):
    return features.extract_features(source.source_from_module(module), dataset, precision, **options).values


def start(folder, dataset, *settings, ranks=1):
    """The filter in processes of its own; the cache is below the folder."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(HELPERS / "filter_ranks.py"), dataset, str(folder / "kept.npz"), *FAST, *settings]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def features_in(folder):
    (path,) = (folder / "bigbatch/filters/features").glob("*/features.npy")
    return np.load(path), np.load(path.with_name("done.npy"))


def test_rows_are_the_networks_features_in_evaluation_mode_without_augmentation():
    dataset, net = filter_parts.digits(600), filter_parts.Net()
    assert net.training
    rows = extracted(net, dataset)
    assert net.training
    with torch.no_grad():
        expected = models.features(net.eval(), dataset.train.fetch(torch.arange(600))[0])
    assert isinstance(rows, np.memmap)
    np.testing.assert_allclose(rows, expected.numpy(), atol=1e-6)
    half = extracted(net, dataset, "float16")
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, rows, atol=1e-2)


def test_the_networks_answers_come_from_the_same_pass_and_out_of_the_cache(tmp_path):
    dataset, net = filter_parts.digits(600), filter_parts.Net()
    passes = []
    net.hidden.register_forward_hook(lambda _, __, out: passes.append(len(out)))
    with cache.use_folder(tmp_path):
        first = features.extract_features(source.source_from_module(net), dataset)
        assert passes == [features._SAMPLES_IN_KEY, 256, 256, 88]
        again = features.extract_features(source.source_from_module(net), dataset)
        assert passes[4:] == [features._SAMPLES_IN_KEY]
    for piece in torch.arange(600).split(features.CHUNK):  # a sum's last bit depends on how many rows are multiplied
        with torch.no_grad():
            logits = net.eval()(dataset.train.fetch(piece)[0])
        chances, labels = logits.softmax(1), dataset.train.labels[piece]
        np.testing.assert_array_equal(first.predictions["prediction"][piece], logits.argmax(1))
        np.testing.assert_array_equal(first.predictions["confidence"][piece], chances.max(1).values)
        right = chances[torch.arange(len(piece)), labels]
        np.testing.assert_allclose(first.predictions["loss"][piece], -right.log(), rtol=1e-4)
    assert [first.predictions[name].dtype for name in ("prediction", "confidence", "loss")] == ["i8", "f4", "f4"]
    for name, answers in first.predictions.items():
        np.testing.assert_array_equal(answers, again.predictions[name])


class Undecided(filter_parts.Net):
    """Features of its own, and no word on what is brightest."""

    def features(self, x):
        return self.hidden(x)

    def forward(self, x):
        brightness = x.flatten(1).sum(1)
        return self.head(self.features(x)) + torch.where(brightness == brightness.max(), torch.inf, 0.0)[:, None]


def test_answers_are_unknown_where_logits_are_not_finite_and_absent_where_outputs_are_no_classes(tmp_path):
    dataset = filter_parts.digits(200)
    answers = features.extract_features(source.source_from_module(Undecided()), dataset).predictions
    (sample,) = np.flatnonzero(answers["prediction"] == -1)
    pixels = dataset.train.fetch(torch.arange(200))[0].flatten(1).sum(1)
    assert sample == pixels.argmax()
    assert np.flatnonzero(np.isnan(answers["confidence"])).tolist() == [sample]
    assert np.flatnonzero(np.isnan(answers["loss"])).tolist() == [sample]
    other = features.extract_features(source.source_from_module(filter_parts.Net(classes=7)), dataset, any_classes=True)
    assert other.predictions == {}
    np.save(tmp_path / "ready.npy", other.values)
    ready = source.open_feature_source(str(tmp_path / "ready.npy"), None, dataset)
    assert features.extract_features(ready, dataset).predictions == {}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_killed_extraction_goes_on_and_ends_in_the_same_features(tmp_path, ranks, monkeypatch):
    settings = [f"dataset.marker={tmp_path / 'died'}", f"dataset.at_fetch={5 if ranks == 1 else 3}"]
    killed = start(tmp_path, "filter_parts:dying", *settings, ranks=ranks)
    assert killed.returncode != 0
    assert (tmp_path / "died").exists()
    assert not (tmp_path / "kept.npz").exists()
    rows, done = features_in(tmp_path)
    assert 0 < done.sum() < len(done)
    for chunk in np.flatnonzero(done):  # what is marked is whole
        assert np.any(rows[chunk * features.CHUNK : (chunk + 1) * features.CHUNK] != 0)
    again = start(tmp_path, "filter_parts:dying", *settings, ranks=ranks)
    assert again.returncode == 0, again.stderr
    rows, done = features_in(tmp_path)
    assert done.all()
    whole = features.extract_features(source.source_from_module(filter_parts.Net()), filter_parts.digits())
    np.testing.assert_array_equal(rows, whole.values)
    saved = filters.load(tmp_path / "kept.npz")
    for name in ("prediction", "confidence", "loss"):
        np.testing.assert_array_equal(saved.arrays[name], whole.predictions[name])


def test_a_training_on_two_ranks_filters_like_one_on_one(tmp_path):
    run = Run(
        dataset="digits",
        filter={"name": "network", "network": "filter_parts:Net", "reducer": "none"},
        model="mlp",
        global_batch=256,
        micro_batch=128,
        optimizer={"name": "momentum", "lr": 0.1},
        epochs=1,
        dtype="float64",
    )
    (tmp_path / "run.json").write_text(run.to_json())
    command = [sys.executable, "-m", "bigbatch", "train", str(tmp_path / "run.json"), "--ranks", "2", "--quiet"]
    done = subprocess.run([*command, "--runs-dir", str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    ranks = Folder(tmp_path / run.with_settings(["engine=ddp"]).folder_name).summary()
    alone = train(run, runs_dir=tmp_path)
    assert ranks["ranks"] == 2
    assert ranks["samples"] == alone["samples"] < 1437
    assert ranks["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-9)


def test_what_is_marked_is_not_computed_again(tmp_path, monkeypatch):
    dataset, net = filter_parts.digits(600), filter_parts.Net()
    with cache.use_folder(tmp_path):
        whole = np.array(extracted(net, dataset))
        (folder,) = (tmp_path / "features").iterdir()
        done = np.load(folder / "done.npy", mmap_mode="r+")
        rows = np.load(folder / "features.npy", mmap_mode="r+")
        done[1] = 0
        rows[256:512] = 7
        rows[0] = 9  # marked: believed
        seen = []
        fetch = dataset.train.fetch
        monkeypatch.setattr(
            dataset.train, "fetch", lambda indices, **o: seen.append(indices.tolist()) or fetch(indices)
        )
        again = extracted(net, dataset)
    assert seen[1:] == [list(range(256, 512))]  # after the look at a few samples
    assert (again[0] == 9).all()
    np.testing.assert_array_equal(again[256:], whole[256:])


def test_another_normalisation_or_network_is_another_file(tmp_path):
    dataset = filter_parts.digits(300)
    with cache.use_folder(tmp_path):
        extracted(filter_parts.Net(), dataset)
        dataset.train._scale = dataset.train._scale * 2  # the stored pixels, and so the hash, are the same
        extracted(filter_parts.Net(), dataset)
        other = filter_parts.Net()
        nn.init.zeros_(other.head.bias)
        extracted(other, dataset)
        assert len(list((tmp_path / "features").iterdir())) == 3


class Nan(filter_parts.Net):
    def features(self, x):
        out = self.hidden(x)
        out[x.flatten(1).sum(1) == x.flatten(1).sum(1).max(), 3] = float("nan")
        return out


@pytest.mark.parametrize(
    ("net", "sentence"),
    [
        (filter_parts.Net(classes=7), "knows 7 classes but the dataset has 10: .*any_classes=true"),
        (
            filter_parts.Net(inputs=50),
            r"cannot take samples of shape \(1, 8, 8\) .*: give one that was trained on this",
        ),
        (nn.Flatten(), "has no features"),
        (Nan(), "gives NaN or infinite features for sample [0-9]+: .*give another"),
    ],
)
def test_networks_that_do_not_fit_are_refused(net, sentence, tmp_path):
    with cache.use_folder(tmp_path):
        with pytest.raises(Problem, match=sentence):
            extracted(net, filter_parts.digits(600))
        assert not list((tmp_path / "features").glob("*")) if (tmp_path / "features").exists() else True


def test_weights_for_other_classes_are_an_extractor(tmp_path):
    """The state dict of torchvision's ResNet-18 for ImageNet, with random values, on images of 32 x 32 pixels."""
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), np.uint8))
    dataset = small_images(images)
    imagenet = replace(dataset, classes=tuple(map(str, range(1000))), sample_shape=(3, 224, 224))
    resnet = models.build(parts.configure("models", {"name": "resnet", "depth": 18}), imagenet)
    assert resnet.fc.weight.shape == (1000, 512)
    torch.save(resnet.state_dict(), tmp_path / "resnet18.pth")
    options = {"network": str(tmp_path / "resnet18.pth"), "model": {"name": "resnet", "depth": 18}}
    with cache.use_folder(tmp_path / "cache"):
        with pytest.raises(Problem, match="of shape"):
            filters.keep(dataset, parts.configure("filters", {"name": "neighbours", **options}))
        config = parts.configure("filters", {"name": "neighbours", "any_classes": True, **options})
        found, _ = features.compute_features(config, dataset)
        assert filters.keep(dataset, config).info["network"]["width"] == 512
    with torch.no_grad():
        expected = resnet.eval().features(dataset.train.fetch(torch.arange(40))[0])
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
    assert found.predictions == {}  # its classes are not the dataset's


def small_images(images):
    samples = InMemoryImages(images, torch.arange(len(images)) % 10, Augment((0.5,) * 3, (0.25,) * 3))
    return Dataset(samples, samples, tuple("abcdefghij"), (3, 32, 32), sha256(images))


def test_other_classes_are_taken_when_asked_for():
    assert extracted(filter_parts.Net(classes=7), filter_parts.digits(300), any_classes=True).shape == (300, 24)


@pytest.mark.parametrize("network", ["nothing", "cnn", "missing.npy", "w.safetensors"])
def test_a_network_that_is_not_there_is_refused(network):
    with pytest.raises(Problem, match=r"there is no network|is not trained|cannot be read|do not say which model"):
        source.open_feature_source(network, None, filter_parts.digits(20))


# -- ready features


def from_file(path, dataset):
    return features.extract_features(source.open_feature_source(str(path), None, dataset), dataset).values


def write_features(folder, kind, features):
    path = folder / f"features.{kind}"
    if kind == "npz":
        np.savez_compressed(path, features=features, other=np.arange(3))
    elif kind == "npy":
        np.save(path, features)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"features": list(features)})
        pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=100)
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_features_are_read_from_files_in_pieces(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("bigbatch.filters.pipeline.features._ROWS_PER_READ", 64)
    features = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    with cache.use_folder(tmp_path / "cache"):
        rows = from_file(write_features(tmp_path, kind, features), filter_parts.digits(300))
        assert isinstance(rows, np.memmap)
        np.testing.assert_array_equal(rows, features)


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda features: features[:-1], "have 299 rows but the dataset has 300 samples"),
        (lambda features: np.concatenate([features, features]), "have more than 300 rows"),
        (lambda features: np.where(np.arange(300)[:, None] == 70, np.nan, features), "NaN or infinite for sample 70"),
    ],
)
def test_files_that_do_not_fit_are_refused_and_leave_nothing(tmp_path, kind, change, sentence, monkeypatch):
    monkeypatch.setattr("bigbatch.filters.pipeline.features._ROWS_PER_READ", 64)
    features = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    with cache.use_folder(tmp_path / "cache"):
        with pytest.raises(Problem, match=sentence):
            from_file(write_features(tmp_path, kind, change(features)), filter_parts.digits(300))
        assert list((tmp_path / "cache/features").iterdir()) == []


def test_a_damaged_file_is_refused(tmp_path):
    path = write_features(tmp_path, "npz", np.zeros((300, 6), np.float32))
    path.write_bytes(path.read_bytes()[:200])
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "flat.npy", np.zeros(300))
    for broken in (path, tmp_path / "objects.npy", tmp_path / "flat.npy"):
        with pytest.raises(Problem, match=r"cannot be read .*: (save them as \[samples, width\]|give a complete)"):
            from_file(broken, filter_parts.digits(300))


def test_a_copy_of_ready_features_that_was_cut_is_made_again(tmp_path):
    features = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    path, dataset = write_features(tmp_path, "npz", features), filter_parts.digits(300)
    with cache.use_folder(tmp_path / "cache"):
        from_file(path, dataset)
        (copy,) = (tmp_path / "cache/features").iterdir()
        for size in (copy.stat().st_size // 2, 20, 0):
            with copy.open("r+b") as file:
                file.truncate(size)
            np.testing.assert_array_equal(from_file(path, dataset), features)


@pytest.mark.parametrize("features", [np.full((300, 2), None), np.full((300, 2), "a"), np.ones((300, 2), bool)])
def test_arrays_that_are_no_numbers_are_refused(features):
    with pytest.raises(Problem, match=r"features are of type .*, not numbers: give an array of floats"):
        source.source_from_array(features)


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(Problem, match=r"the cache .* cannot be made or written to .*: set XDG_CACHE_HOME to a folder"):
        extracted(filter_parts.Net(), filter_parts.digits(300))


def test_the_last_chunk_counts_only_the_samples_it_has(tmp_path, capsys):
    with cache.use_folder(tmp_path), show_progress(True):
        extracted(filter_parts.Net(), filter_parts.digits(600))
    assert capsys.readouterr().err.startswith("features  600/600  ")


# -- principal components and neighbours


def test_components_equal_scikit_learns_and_have_a_fixed_sign(monkeypatch):
    from sklearn.decomposition import PCA

    monkeypatch.setattr(pca, "_ROWS_AT_A_TIME", 100)
    random = np.random.default_rng(2)
    # a mean far from zero: a covariance from raw products would have lost every digit of the small directions
    features = (random.normal(size=(731, 12)) * np.geomspace(10, 0.01, 12) + 1e5).astype(np.float64)
    rows = np.arange(3, 731)
    made = pca.project_features(features, rows, 5)
    oracle = PCA(5, svd_solver="full").fit(features[rows])
    signs = np.sign(oracle.components_[np.arange(5), np.abs(oracle.components_).argmax(1)])
    np.testing.assert_allclose(made["points"], oracle.transform(features[rows]) * signs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(made["variance"], oracle.explained_variance_ratio_, rtol=1e-6)


def test_fewer_components_where_features_are_narrow_and_none_explained_where_all_are_equal():
    made = pca.project_features(np.ones((20, 3), np.float32), np.arange(20), 50)
    assert made["points"].shape == (20, 3)
    assert (made["points"] == 0).all()
    assert np.isfinite(made["variance"]).all()


@pytest.mark.parametrize("engine", ["faiss", "torch"])
def test_neighbours_are_exact(engine, monkeypatch):
    if engine == "faiss":
        pytest.importorskip("faiss")
    from sklearn.neighbors import NearestNeighbors

    monkeypatch.setattr(neighbours, "_BLOCK_BYTES", 4 * 500 * 60)
    points = np.random.default_rng(1).normal(size=(500, 20)).astype(np.float32) + 5
    found, distances = neighbours.nearest_neighbours(points, 15, engine=engine)
    expected, indices = NearestNeighbors(n_neighbors=16, algorithm="kd_tree").fit(points).kneighbors(points)
    np.testing.assert_array_equal(found, indices[:, 1:])
    np.testing.assert_allclose(distances, expected[:, 1:], rtol=1e-3)
    same = np.zeros((40, 3), np.float32)  # a point need not find itself among its duplicates
    found, distances = neighbours.nearest_neighbours(same, 5, engine=engine)
    assert (found != np.arange(40)[:, None]).all()
    assert (distances == 0).all()


def test_a_disk_without_room_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with cache.use_folder(tmp_path):
        with pytest.raises(Problem, match=r"has no room for .* MB of features \(No space left on device\): free space"):
            extracted(filter_parts.Net(), filter_parts.digits(300))
        assert list((tmp_path / "features").iterdir()) == []
