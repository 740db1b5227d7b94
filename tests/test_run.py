import json
import os
import subprocess
import sys

import pytest
from small import small_run

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.run import Run


def test_json_round_trip_is_exact():
    run = small_run(optimizer={"name": "momentum", "lr": 0.1 + 0.2}, filter={"name": "random", "drop": 0.1})
    assert Run.from_json(run.to_json()) == run
    assert Run.from_json(run.to_json()).to_json() == run.to_json()
    assert run.optimizer.lr == 0.30000000000000004


def test_the_hash_is_stable_across_processes_and_sees_every_field():
    run = small_run()
    code = "import sys; from bigbatch.run import Run; print(Run.from_json(sys.stdin.read()).hash)"
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], input=run.to_json(), capture_output=True, text=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        assert done.stdout.strip() == run.hash
    changes = ["seed=1", "epochs=3", "optimizer.lr=0.2", "model.hidden=[8]", "global_batch=128", "dtype=bfloat16"]
    assert len({run.hash} | {run.with_settings([change]).hash for change in changes}) == len(changes) + 1


def test_the_name_is_not_part_of_the_identity():
    assert small_run(name="a").hash == small_run(name="b").hash
    assert small_run(name="a").folder_name == f"a-{small_run().hash}"


def test_a_run_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        small_run().seed = 3


def test_a_plain_number_is_a_constant_batch_and_is_written_as_one():
    assert json.loads(small_run(global_batch=8192).to_json())["global_batch"] == 8192
    assert small_run(global_batch=8192).global_batch.name == "constant"


def test_settings_reach_any_field():
    run = small_run().with_settings(
        ["optimizer.lr=3.2", "model=mlp", "model.hidden=[8,4]", "steps=7", "seed=5", "engine=ddp", "micro_batch=auto"]
    )
    assert run.optimizer.lr == 3.2
    assert run.model.hidden == (8, 4)
    assert (run.steps, run.epochs) == (7, None)
    assert (run.seed, run.engine.name, run.micro_batch) == (5, "ddp", "auto")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("optimzer.lr=1", "a run has no option 'optimzer'; did you mean 'optimizer'"),
        ("sead=1", "a run has no option 'sead'; did you mean 'seed'"),
        ("optimizer.lrr=1", "has no option 'lrr'; did you mean 'lr'"),
        ("optimizer=lasr", "no optimizer called 'lasr'; did you mean 'lars'"),
        ("seed=-1", "seed .*got -1"),
        ("global_batch=-8", "global_batch .*got -8"),
        ("optimizer.lr=NaN", "lr .*got nan"),
        ("seed.x=1", "'seed' is 0 and has no fields"),
        ("seed", "write FIELD=VALUE"),
        ("name=../up", "name .*pattern"),
        ("micro_batch=0", "micro_batch should be greater than 0; got 0"),
        ("seed=100000000000000000000000", "seed should be less than"),
        ("lr=3", r"a run has no 'lr': use --set optimizer"),
        ("optimizer=torch.optim:AdamW", "'torch.optim:AdamW' has no lr for the schedule to set: use optimizer.lr"),
        (
            'global_batch={"name":"noise_scale","start":8,"minimum":8,"maximum":64}',
            "goes by what the probe 'noise_scale' measures: add it with --set 'probes=",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(setting, sentence):
    with pytest.raises(Problem, match=sentence) as caught:
        small_run().with_settings([setting])
    assert "\n" not in str(caught.value)


def test_a_run_ends_after_epochs_or_after_steps():
    with pytest.raises(Problem, match="set one of them"):
        small_run(steps=3)
    with pytest.raises(Problem, match="set one of them"):
        small_run(epochs=None)


@pytest.mark.parametrize("name", parts.names("recipes"))
def test_every_recipe_is_a_complete_run(name):
    run = parts.find("recipes", name).run()
    assert isinstance(run, Run)
    assert Run.from_json(run.to_json()) == run


def test_the_package_offers_train_before_and_after_its_modules_are_imported():
    code = (
        "import sys, bigbatch; assert 'torch' not in sys.modules\n"
        "import bigbatch.training\nassert callable(bigbatch.train) and bigbatch.Run.__name__ == 'Run'\n"
        "from bigbatch import train; assert train is bigbatch.training.train"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
