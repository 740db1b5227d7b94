"""show, list and doctor explain what there is; wrong words are answered with the right ones."""

from __future__ import annotations

import pytest

from bigbatch import parts
from bigbatch.cli import main
from bigbatch.run import Run


def run_command(capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return ended.value.code or 0, " ".join((captured.out + captured.err).split())


def test_every_field_of_a_run_has_a_meaning():
    assert [name for name, field in Run.model_fields.items() if not field.description] == []


def test_every_option_of_models_and_losses_has_a_meaning():
    for kind in ("models", "losses"):
        for part in parts.names(kind):
            options = parts.find(kind, part).Config.model_fields
            assert [name for name, field in options.items() if not field.description] == ["name"], part


def test_show_prints_values_and_where_they_come_from(capsys):
    code, text = run_command(capsys, "show", "digits", "--set", "epochs=2", "optimizer=adam", "model.width=8")
    assert code == 0
    assert "epochs 2.0 --set passes over" in text
    assert "optimizer adam --set" in text
    assert "optimizer.lr 0.001 default" in text
    assert "model.width 8 --set" in text
    assert "global_batch.global_batch 16 recipe" in text
    assert "seed 0 default" in text


def test_list_explains_one_part(capsys):
    code, text = run_command(capsys, "list", "optim", "lars")
    assert code == 0
    assert "You, Gitman, Ginsburg 2017" in text
    assert "λ = η‖w‖ / (‖g‖ + β‖w‖ + eps)" in text
    assert "trust_coefficient 0.001" in text


def test_doctor_names_versions_and_what_is_missing(capsys):
    code, text = run_command(capsys, "doctor")
    assert code == 0
    assert "torch 2." in text
    assert "extra plot" in text
    assert "missing" not in text or "pip install 'bigbatch[" in text


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["digits", "--lr", "0.1"], "Unknown option: --lr. Use --set optimizer.lr=0.1"),
        (["digits", "--batch-size", "8"], "Use --set global_batch=512"),
        (["digits", "--nproc-per-node", "2"], "Use --ranks 2"),
        (["digits", "--dtype", "float64"], "Use --set dtype=..."),
        (["digits", "--set", "lr=0.1"], "a run has no 'lr': use --set optimizer.lr=0.1"),
        (["digits", "--set", "batch_size=8"], "a run has no 'batch_size': use --set global_batch=512"),
        (["adamw"], "'adamw' is of the kind optimizer, not recipe: use --set optimizer=adamw"),
    ],
)
def test_words_of_other_tools_are_answered_with_ours(capsys, arguments, hint):
    code, text = run_command(capsys, "train", *arguments)
    assert code == 2
    assert hint in text
