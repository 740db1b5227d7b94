"""The papers' full settings: one step of each on a small folder with ImageNet's layout, or on small text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image

from bigbatch import engines, parts, rng, schedules
from bigbatch.artifacts.folder import Folder
from bigbatch.position import Position
from bigbatch.recipes import lars_alexnet, lars_alexnet_bn, lars_googlenet, lars_resnet50, load_run
from bigbatch.training.evaluate import evaluate
from bigbatch.training.loop import Training, TrainOptions


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "imagenet"
    for part in ("train", "val"):
        for number in range(100):  # so many classes that top-5 is measured
            path = folder / part / f"n{number:08d}" / "image.JPEG"
            path.parent.mkdir(parents=True)
            if part == "train" or number < 2:
                pixels = rng.integers(256, number, np.arange(64 * 48 * 3)).astype(np.uint8).reshape(48, 64, 3)
                Image.fromarray(pixels).save(path)
    return folder.parent


@pytest.mark.parametrize(
    "recipe", ["lars_alexnet", "lars_alexnet_bn", "lars_resnet50", "lars_googlenet", "legw_resnet50"]
)
def test_one_step_on_a_folder_with_imagenets_layout(imagenet, tmp_path, recipe):
    small = ["global_batch=2", "micro_batch=2", "batchnorm_group=2", "steps=1", "dataset.workers=0"]
    run = load_run(recipe, [*small, "schedule=constant"])
    folder = Folder(tmp_path / "run")
    folder.create(run)
    engine = engines.start(run.engine)
    training = Training(run, folder, engine, TrainOptions(imagenet))
    training.step(lambda: False, False)  # without a checkpoint, which is half a gigabyte for AlexNet
    measures = evaluate(training)
    training.close()
    engine.stop()
    assert math.isfinite(measures["test_loss"])
    assert 0 <= measures["test_accuracy"] <= measures["test_accuracy_top5"] <= 1


def test_the_batches_of_the_lars_paper_have_its_learning_rates():
    for module, settings in ((lars_alexnet, lars_alexnet.LR), (lars_alexnet_bn, lars_alexnet_bn.LR)):
        assert {batch: module.run(batch).optimizer.lr for batch in settings} == settings
    assert lars_resnet50.run(16384).schedule.warmup.epochs == 12
    assert lars_googlenet.run(8192).epochs == 250


def test_legw_gives_the_last_row_of_its_table():
    run = load_run("legw_resnet50", ["global_batch=32768"])
    lr = schedules.lr(Position(10.0, 90.0, 32768), run)
    assert lr == pytest.approx(32 * (1 - 10 / 90) ** 2)  # 2⁵ reached after 10 epochs, polynomial from the start
    assert schedules.lr(Position(5.0, 90.0, 32768), run) == pytest.approx(16)


@pytest.mark.parametrize("depth", [18, 152])
@pytest.mark.parametrize("batch", [16, 20_480])
def test_gahlots_resnets_are_described_from_16_to_20480(depth, batch):
    run = load_run("gahlot_resnet", [f"model.depth={depth}", f"global_batch={batch}"])
    assert (run.model.depth, run.dataset.crop) == (depth, 28)


def test_every_recipe_is_a_complete_run():
    for name in parts.names("recipes"):
        assert load_run(name).hash
