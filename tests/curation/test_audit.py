"""An audit plants noise that it knows of: what filters find of it is counted, not estimated."""

from __future__ import annotations

import csv

import pytest

from bigbatch import cli
from bigbatch.curation import AuditRequest, audit_filters, summarise_audit
from bigbatch.errors import Problem

QUICK = ["model=mlp", "folds=2", "epochs=20", "reducer=none"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    out = tmp_path_factory.mktemp("audit")
    request = AuditRequest(
        "digits",
        out,
        network="filter_parts:Net",
        settings=QUICK,
        kinds={"flip": 0.04, "constant": 0.02},
        plants=2,
        samples=700,
        filters=["random", "network", "loss", "neighbours", "junk", "combined"],
        drops=[0.1, 0.2],
        quiet=True,
    )
    return out, audit_filters(request)


def mean_recall(rows, extractor, name, kind="all", drop=0.1):
    found = [r.recall for r in rows if (r.extractor, r.filter, r.kind, r.drop) == (extractor, name, kind, drop)]
    assert len(found) == 2
    return sum(found) / 2


def test_every_filter_is_judged_on_every_plant_with_every_extractor_at_every_size(audited):
    _, rows = audited
    judged = [row for row in rows if row.filter != "(features)"]
    by_features = {"network", "loss", "neighbours", "junk", "combined"}
    pairs = {(extractor, name) for extractor in ("clean", "noisy", "out of fold") for name in by_features}
    assert {(row.extractor, row.filter) for row in judged} == pairs | {("its own", "random")}
    assert len(judged) == 16 * 2 * 2 * 3  # filters, plants, sizes, kinds and all
    assert all(0 <= row.recall <= 1 and row.cpu_seconds >= 0 for row in judged)


def test_what_is_found_is_what_was_planted(audited):
    _, rows = audited
    assert mean_recall(rows, "out of fold", "loss", "flip") > 0.8
    assert mean_recall(rows, "noisy", "junk", "constant") == 1
    assert mean_recall(rows, "its own", "random") < 0.3
    for row in rows:
        if row.filter == "combined" and row.kind == "all":
            assert row.precision * 70 * row.drop / 0.1 == pytest.approx(row.recall * 42, abs=2)  # counts round


def test_tables_charts_and_a_page_are_written(audited):
    out, rows = audited
    with (out / "audit.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert {"recall_clean.png", "recall_noisy.svg", "recall_out_of_fold.csv", "index.html"} <= {
        path.name for path in out.iterdir()
    }
    columns, lines = summarise_audit(rows, 0.1)
    assert columns == ["extractor", "filter", "recall %", "precision %", "flip", "constant", "CPU s", "MB"]
    assert all(len(line) == len(columns) for line in lines)
    assert " ± " in lines[1][2]


def test_the_command_prints_tables_even_when_quiet(tmp_path, capsys):
    line = ["filter", "audit", "digits", "--out", str(tmp_path / "out"), "--quiet", "--plants", "1"]
    line += ["--samples", "300", "--filters", "random", "neighbours", "--drops", "0.05", "--plant", "flip=0.1"]
    with pytest.raises(SystemExit) as end:
        cli.main([*line, *(f"--set={setting}" for setting in QUICK)])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "5 % of each class dropped" in printed
    assert "neighbours" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"plants": 0}, "--plants must be at least 1"),
        ({"drops": [1.5]}, "--drops must be between 0 and 1, got 1.5"),
        ({"kinds": {"flop": 0.1}}, "did you mean 'flip'"),
        ({"filters": ["los"]}, "no filter called 'los'"),
    ],
)
def test_what_cannot_be_audited_is_refused(options, sentence, tmp_path):
    with pytest.raises(Problem, match=sentence):
        audit_filters(AuditRequest("digits", tmp_path / "out", settings=QUICK, quiet=True, **options))
