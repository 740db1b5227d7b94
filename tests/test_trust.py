"""A file from a stranger names code: nothing of it runs, whatever is done with the file, until the user trusts it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from small import bigbatch, small_run

import bigbatch as package
from bigbatch import cli, datasets, filters, parts, trust
from bigbatch.artifacts.folder import Folder
from bigbatch.errors import Notice, Problem
from bigbatch.recipes import load_run
from bigbatch.run import Run, fingerprint
from bigbatch.sweeps import Sweep, SweepConfig

EVIL = "evil_part:Thing"


@pytest.fixture
def ran(tmp_path, monkeypatch) -> Path:
    """The current folder holds a hostile module; the returned file exists once its code ran."""
    monkeypatch.setenv("BIGBATCH_TRUST", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    marker = tmp_path / "ran"
    here = tmp_path / "downloaded"
    here.mkdir()
    (here / "evil_part.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n"
        "from bigbatch.recipes import digits\n"
        "from bigbatch.datasets.digits import Config, load\n"
        "def Thing(**options):\n    return load(Config(), None)\n"
        "def recipe():\n    return digits.run().with_settings(['name=mine', 'steps=1', 'dataset=evil_part:Thing'])\n"
    )
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("evil_part", None)  # an earlier test may have imported its own
    parts._find.cache_clear()
    return marker


def stored_run(part: str = "dataset", name: object = EVIL) -> Path:
    """The folder of a run whose run.json names foreign code, with a right hash."""
    fields = small_run(steps=1, epochs=None).to_dict() | {part: name}
    folder = Path("runs/downloaded")
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"run": fields, "hash": fingerprint(fields)}))
    return folder


def stored_result(path: str = "kept.npz") -> Path:
    """A kept.npz with a map, whose manifest names foreign code as its dataset."""
    config = parts.configure("datasets", "digits")
    dataset = datasets.load(config)
    points = np.random.default_rng(0).normal(size=(len(dataset.train), 2)).astype(np.float32)
    np.savez("map.npz", map=points, labels=dataset.train.labels.numpy())
    on_map = parts.configure("filters", {"name": "on_map", "network": "map.npz"})
    result = filters.create_result(filters.keep(dataset, on_map), dataset, config, on_map)
    about = result.require_manifest()
    result = replace(result, manifest=replace(about, dataset=replace(about.dataset, config={"name": EVIL})))
    return filters.save(path, result).path


def stored_sweep(**changes: object) -> Path:
    run = small_run(steps=1, epochs=None).model_dump(mode="json")
    folder = Path("sweep")
    (folder / "runs").mkdir(parents=True)
    (folder / "sweep.json").write_text(json.dumps({"run": run} | changes))
    return folder


REFUSED = "evil_part', which a file names and you did not: if you trust it, add --trust evil_part"


def refuse(*arguments: object) -> None:
    """Run a command of the command line in this process: it ends in our sentence."""
    with pytest.raises(Problem, match=REFUSED):
        run_command(*arguments)


def run_command(*arguments: object) -> object:
    return cli.app.meta([str(one) for one in arguments], **cli.AS_A_FUNCTION)


@pytest.mark.parametrize("command", ["resume", "probe", "advise", "train", "schedule", "filter", "sweep"])
def test_a_downloaded_run_runs_nothing(ran, command):
    folder = stored_run()
    arguments = {
        "train": ["train", folder / "run.json"],
        "schedule": ["schedule", folder / "run.json"],
        "filter": ["filter", "digits", "--network", folder],
        "sweep": ["sweep", folder / "run.json", "--plan"],
    }.get(command, [command, folder])
    refuse(*arguments)
    assert not ran.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"run": small_run().model_dump(mode="json") | {"dataset": {"name": EVIL}}},
        {"grids": {"dataset": [EVIL]}},
        {"grids": {"dataset.name": [EVIL]}},
        {"variants": {"A": {"dataset": {"name": "held_out", "of": EVIL}}}},
        {"grids": {"scaling_rule": ["evil_part"], "scale_batch": [2]}},
        {"search": {"ranges": [{"field": "dataset", "choices": ["digits", EVIL]}], "trials": 1}},
    ],
    ids=["run", "grid", "dotted grid", "nested variant", "scaling rule", "search"],
)
def test_planning_and_running_a_downloaded_sweep_runs_nothing(ran, changes):
    folder = stored_sweep(**changes)
    sweep = Sweep.open(folder)
    with pytest.raises(Problem, match="evil_part"):
        sweep.check()
    with pytest.raises(Problem, match=r"evil_part|missing now"):
        Sweep.create(small_run(), folder)
    assert not ran.exists()


def test_the_commands_of_a_downloaded_sweep_run_nothing(ran):
    folder = stored_sweep(grids={"dataset": [EVIL]})
    for option in ("--plan", "--table", "--quiet"):
        refuse("sweep", folder, option)
    Path("variants.json").write_text(json.dumps({"A": {"dataset": EVIL}}))
    refuse("sweep", "digits", "--variants", "variants.json", "--plan", "--out", "other")
    assert not ran.exists()


def test_a_report_shows_runs_and_sweeps_of_foreign_code_without_running_it(ran):
    run = stored_run()
    sweep = stored_sweep(grids={"dataset": [EVIL]})
    run.rename(sweep / "runs" / "one")
    with pytest.warns(Notice, match="sweep is reported as single runs"):
        run_command("report", sweep)
    assert EVIL in Path("report.html").read_text()
    assert not ran.exists()


def test_viewing_a_downloaded_result_runs_nothing(ran):
    from bigbatch.viewer.sources import open_sources

    (source,) = open_sources([stored_result()], None)
    assert source.dataset is None
    assert REFUSED in source.notes[0]
    assert not ran.exists()
    trust.trust_modules(["evil_part"])
    (source,) = open_sources(["kept.npz"], None)
    assert source.dataset is not None
    assert ran.exists()


@pytest.mark.parametrize("options", [{"network": EVIL}, {"network": "weights.pt", "model": {"name": EVIL}}])
def test_rebuilding_and_comparing_a_downloaded_result_runs_nothing(ran, options):
    path = stored_result()
    with pytest.raises(Problem, match="evil_part"):
        filters.rebuild(path)
    refuse("filter", "compare", path, stored_result("other.npz"), "--recipe", "digits")
    # a network that the filter's options name
    saved = filters.load(path)
    about = saved.require_manifest()
    digits = replace(about.dataset, config={"name": "digits"})
    about = replace(about, dataset=digits, filter=about.filter | {"name": "network"} | options)
    path.with_suffix(".json").write_text(json.dumps(asdict(about)))
    Path("weights.pt").touch()
    with pytest.raises(Problem, match="evil_part"):
        filters.rebuild(path.with_suffix(".json"))
    assert not ran.exists()


@pytest.mark.parametrize("name", ["os:system", "evil_part", "evil_part:Thing", "torch.optim:SGD", ".x", "a..b:c", ":x"])
@pytest.mark.parametrize("kind", parts.KINDS)
def test_no_kind_of_part_is_imported_by_a_name_that_nobody_typed(ran, kind, name):
    with pytest.raises(Problem, match=r"add --trust|no .* called"):
        parts.configure(kind, name)
    assert not ran.exists()


def test_what_is_typed_is_trusted_by_that_name_alone(ran):
    Run(**small_run().model_dump() | {"dataset": {"name": "held_out", "of": EVIL}})
    assert ran.exists()
    assert trust.trusted_names() == [EVIL]
    assert Run.from_fields(small_run().model_dump() | {"dataset": EVIL}).dataset.name == EVIL
    with pytest.raises(Problem, match="would run the code of module 'os'"):
        Run.from_fields(small_run().model_dump() | {"dataset": "os:system"})
    with pytest.raises(Problem, match="'evil_part:Other'"):
        Run.from_fields(small_run().model_dump() | {"dataset": "evil_part:Other"})


def test_python_and_settings_are_typed_and_files_are_not(ran):
    fields = small_run().to_dict() | {"dataset": EVIL}
    Path("run.json").write_text(json.dumps(fields))
    for from_file in (
        lambda: load_run("run.json"),
        lambda: Run.from_json(json.dumps(fields)),
        lambda: small_run().with_settings([f"dataset={EVIL}"], typed=False),
        lambda: SweepConfig(run=fields).points(),
    ):
        with pytest.raises(Problem, match="--trust evil_part"):
            from_file()
    assert not ran.exists()
    assert load_run("digits", [f"dataset={EVIL}"]).dataset.name == EVIL
    assert load_run("run.json").dataset.name == EVIL  # typed before, in this process


def test_one_module_is_trusted_for_one_command(ran):
    folder = stored_run()
    assert "test accuracy" in bigbatch("resume", folder, "--trust", "evil_part").stdout
    assert ran.exists()
    refuse("resume", folder)
    refuse("resume", folder, "--trust", "evil", "--trust", "os")
    with pytest.raises(Problem, match="is not a module"):
        run_command("resume", folder, "--trust", "*")


def test_a_module_is_remembered_and_forgotten(ran, capsys, monkeypatch):
    folder = stored_run()
    run_command("trust", "evil_part", "other.mod")
    monkeypatch.setenv("BIGBATCH_TRUST", "")  # of that process
    assert Folder(folder).run().dataset.name == EVIL
    run_command("trust", "--forget", "evil_part")
    monkeypatch.setenv("BIGBATCH_TRUST", "")
    refuse("resume", folder)
    run_command("trust")
    assert capsys.readouterr().out.split() == ["evil_part", "other.mod", "other.mod", "other.mod"]


def test_ranks_trust_what_was_typed_and_look_into_the_current_folder_last(ran):
    """They are started with the run.json of the run that the user just typed."""
    Path("numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    assert "test accuracy" in bigbatch("train", "evil_part:recipe", "--ranks", "2").stdout
    assert Folder(next(Path("runs").iterdir())).status == "done"


def test_workers_of_a_sweep_trust_what_was_typed(ran):
    grid = f"dataset=digits,{EVIL}"
    done = bigbatch("sweep", "digits", "--set", "steps=1", "--grid", grid, "--out", "s", "--quiet")
    assert f"dataset={EVIL}" in done.stdout
    assert [Folder(path).status for path in Path("s/runs").iterdir()] == ["done", "done"]


# -- the import path


@pytest.mark.parametrize("program", [["-m", "bigbatch"], [Path(sys.executable).with_name("bigbatch")]], ids=str)
def test_a_package_lying_in_the_current_folder_is_not_imported(ran, program):
    stored_run(name="digits")
    for name in ("numpy", "torch", "cyclopts", "pydantic", "matplotlib", "bigbatch_extra", "scipy"):
        Path(f"{name}.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    Path("mine.py").write_text("import scipy\nfrom bigbatch.recipes.digits import run as recipe\n")
    for command in (["report", "runs"], ["schedule", "mine:recipe"]):
        subprocess.run([sys.executable, *program, *command], check=True, capture_output=True, timeout=120)
    assert not ran.exists()


def test_describing_where_a_run_was_made_runs_no_program_of_the_folder(ran):
    """git runs what the configuration of a repository names, and so of any folder that was unpacked here."""
    program = f"touch {ran}"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    Path("data.txt").write_text("a\n")
    Path(".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *arguments], check=True)
    for name in (
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
        "diff.external",
    ):
        subprocess.run(["git", "config", name, program], check=True)
    subprocess.run(["git", "config", "core.fsmonitor", program], check=True)
    Path("data.txt").write_text("b\n")
    from bigbatch.artifacts import provenance

    about = provenance.collect()
    assert not ran.exists()
    assert "+b" in about["dirty_diff"]
    assert len(about["commit"]) == 40


# -- nobody forgets


def test_fields_of_files_become_runs_in_known_places_alone():
    """`Run(...)` trusts what it is given: inside the package it gets what was typed, or a run's own fields."""
    typed = {"recipes", "scaling/ranks.py", "scaling/workload.py", "testing", "advice"}
    own_fields = {
        "curation/rounds.py",
        "curation/comparison.py",
        "curation/tuning.py",
        "sweeps/frontier.py",
        "sweeps/search.py",
        "demo/run.py",
        "papers/lars/settings.py",
        "papers/legw/settings.py",
        "papers/plan.py",
        "papers/reproduction.py",
    }
    root = Path(package.__file__).parent
    found = set()
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Run":
                name = path.relative_to(root).as_posix()
                found.add(name if name in typed | own_fields else name.partition("/")[0])
    assert found <= typed | own_fields


def test_settings_of_sweeps_are_never_taken_for_typed():
    root = Path(package.__file__).parent / "sweeps"
    for path in root.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "with_settings":
                literal = not node.keywords and ast.unparse(node.args[0]).startswith("[f'seed=")
                assert literal or [keyword.arg for keyword in node.keywords] == ["typed"], ast.unparse(node)


def test_a_name_becomes_an_import_in_one_place():
    """Whoever imports by a name that is not written in the code goes through parts.find."""
    allowed = {"parts.py", "libraries.py", "__init__.py", "scaling/__init__.py", "optim/__init__.py"}
    allowed |= {"commands/__init__.py", "testing/__init__.py", "sweeps/plan.py", "scaling/ranks.py"}
    allowed |= {"papers/catalog.py"}
    root = Path(package.__file__).parent
    names = ("import_module", "__import__", "resolve_name", "run_module", "run_path", "exec", "eval")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names
        if not ast.unparse(node.func).endswith(("model.eval", "module.eval", ".eval"))
    }
    assert found - {"launch/forkserver.py"} <= allowed


def test_the_environment_is_left_as_it_was_for_what_is_built_in(monkeypatch):
    monkeypatch.setenv("BIGBATCH_TRUST", "")
    small_run().with_settings(["optimizer=lars", "filter=null", "epochs=1.5"])
    assert os.environ["BIGBATCH_TRUST"] == ""
