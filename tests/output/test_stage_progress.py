"""What a person sees of a station's progress."""

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


def test_a_station_within_a_station_keeps_quiet(capsys):
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
