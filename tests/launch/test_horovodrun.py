"""What starts Horovod's ranks, where Horovod itself is not needed for it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from small import bigbatch, small_run, write_run

from bigbatch import engines
from bigbatch.engines import horovod
from bigbatch.launch import horovodrun
from bigbatch.run import Run


def command(program, **variables):
    """As horovodrun writes it."""
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join(["env", *words, shlex.quote(sys.executable), "-c", shlex.quote(program)])


class OnceThereIs:
    """An event that is set when a file is there."""

    def __init__(self, path):
        self.path = path

    def is_set(self):
        return self.path.exists()


@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        (
            {"sitecustomize.py": "import sys; sys.modules['horovod'] = None"},  # Python's way to say: not installed
            "engine 'horovod' needs Horovod, which is not installed: 'make horovod' builds it",
        ),
        (
            {"horovod/__init__.py": "", "horovod/torch/__init__.py": "print('Warning!')"},
            "(No module named 'horovod.torch.mpi_lib_v2'): 'make horovod' builds it for this torch",
        ),
    ],
    ids=["missing", "without its library"],
)
def test_without_horovod_there_is_one_sentence_and_nothing_is_left_behind(tmp_path, monkeypatch, setup, sentence):
    for name, text in setup.items():
        (tmp_path / "path" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "path" / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "path"), os.environ["PYTHONPATH"]]))
    path = write_run(small_run(engine="horovod"), tmp_path)
    done = bigbatch("train", path, "--ranks", 2, "--runs-dir", tmp_path / "runs", expect=2)
    assert done.stderr.endswith(f"{sentence}\n")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (tmp_path / "runs").exists()


def test_a_rank_gets_its_variables_without_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("INHERITED", "yes")
    program = f"import os; open({str(tmp_path / 'said')!r}, 'w').write(os.environ['WORDS'] + os.environ['INHERITED'])"
    assert horovodrun._execute(command(program, HOROVOD_RANK="1", WORDS="a=b; $HOME 'c'\n"), index=1) == 0
    assert (tmp_path / "said").read_text() == "a=b; $HOME 'c'\nyes"


def test_a_killed_rank_ends_with_a_shells_exit_code():
    assert horovodrun._execute(command("import os; os.kill(os.getpid(), 9)")) == 128 + signal.SIGKILL


@pytest.mark.parametrize(("deaf", "code"), [(False, 128 + signal.SIGTERM), (True, 128 + signal.SIGKILL)])
def test_a_rank_is_told_to_end_and_then_ended(tmp_path, monkeypatch, deaf, code):
    monkeypatch.setattr(horovodrun, "_SECONDS_TO_END_BY_ITSELF", 0.2 if deaf else 30.0)
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if deaf else ""
    program = f"import signal; {ignore}open({str(tmp_path / 'ready')!r}, 'w'); signal.pause()"
    assert horovodrun._execute(command(program), events=[OnceThereIs(tmp_path / "ready")]) == code


def test_ranks_meet_on_loopback_alone_at_a_port_that_is_free():
    def start(address):
        return HTTPServer(address, BaseHTTPRequestHandler)

    first, first_port = horovodrun._on_loopback(start)
    second, second_port = horovodrun._on_loopback(start)
    with first, second:
        assert first.socket.getsockname() == ("127.0.0.1", first_port)
        assert first_port != second_port


def test_a_rank_of_horovodrun_knows_itself(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "3", "SIZE": "8", "LOCAL_SIZE": "4"}.items():
        monkeypatch.setenv(f"HOROVOD_{name}", value)
    assert (engines.env_rank(), engines.env_world_size(), engines.env_local_world_size()) == (3, 8, 4)
    assert engines.fit_run_to_ranks(small_run()).engine.name == "horovod"
    assert not engines.was_restarted()
    monkeypatch.setenv(engines.RESTARTS, "1")
    assert engines.was_restarted()


def test_settings_become_the_variables_that_horovod_reads():
    options = {"fusion_mb": 0.5, "cycle_ms": 2.5, "cache_capacity": 0, "timeline": "t.json", "timeout_seconds": 9.5}
    run = Run(**(small_run().model_dump(mode="json") | {"engine": {"name": "horovod"} | options}))
    assert horovod.environment(run.engine) == {
        "HOROVOD_FUSION_THRESHOLD": "524288",
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_CACHE_CAPACITY": "0",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "10",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "10",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "10",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
    }
