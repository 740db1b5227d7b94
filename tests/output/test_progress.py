"""Progress of trainings and of stages on a terminal and in a log."""

from __future__ import annotations

from bigbatch.output import progress


def test_a_library_is_quiet_and_a_command_says_how_long_it_took(capsys):
    with progress.stage("map", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""
    with progress.show_progress(True), progress.stage("map", 10) as advance:
        advance(10, "KL divergence 1.2")
    assert capsys.readouterr().err.startswith("map  10/10  0.0 s  KL divergence 1.2")


def test_lines_are_ten_seconds_apart_and_tell_the_time_left(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with progress.show_progress(True), progress.stage("features", 400) as advance:
        for done, second in ((100, 105.0), (200, 112.0), (300, 115.0), (400, 124.0)):
            clock[0] = second
            advance(done)
    assert capsys.readouterr().err.splitlines() == ["features  200/400  12 s left", "features  400/400  24.0 s"]


def test_a_stage_within_a_stage_is_not_shown(capsys):
    with progress.show_progress(True), progress.stage("trials", 1) as outer:
        with progress.stage("map", 1) as inner:
            inner(1)
        outer(1)
    assert "map" not in capsys.readouterr().err


def test_a_terminal_gets_a_bar(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.show_progress(True), progress.stage("features", 4) as advance:
        advance(4, "all of them")
    assert "features" in capsys.readouterr().err


def test_the_display_depends_on_quiet_and_the_terminal(monkeypatch):
    assert type(progress.choose_display(quiet=True)) is progress.ProgressDisplay
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert isinstance(progress.choose_display(quiet=False), progress.LogLines)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert isinstance(progress.choose_display(quiet=False), progress.ProgressBar)


def test_a_training_in_a_log_has_timed_lines(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    display = progress.LogLines()
    display.start(total_epochs=4, epochs=1)
    for epoch, second in ((1.5, 105.0), (2.0, 112.0)):
        clock[0] = second
        display.show_step({"epoch": epoch, "train_loss": 0.25}, samples_per_second=1234)
    display.show_evaluation({"epoch": 2.0, "test_accuracy": 0.9833})
    display.show_evaluation({"epoch": 3.0, "test_perplexity": 115.9})
    display.close()
    lines = [line.split("  ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "epoch 2.00/4  loss 0.2500  1,234 samples/s  24 s left",
        "epoch 2/4  test accuracy 98.33 %",
        "epoch 3/4  test perplexity 115.90",
    ]


def test_a_training_on_a_terminal_has_a_bar(capsys):
    bar = progress.ProgressBar()
    bar.start(total_epochs=4, epochs=1)
    bar.show_step({"epoch": 1.5, "train_loss": 0.25}, samples_per_second=1234)
    bar.show_evaluation({"epoch": 2.0, "test_accuracy": 0.9833})
    bar.close()
    shown = capsys.readouterr().err
    assert "epoch 2.00/4" in shown
    assert "test accuracy 98.33 %" in shown
