"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import process_trees

from bigbatch.launch.parent import MESSAGES, PARENT, wait_for_orphans

CHILD = """
import os, signal, sys
from bigbatch.launch.parent import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
signal.pause()
"""
PARENTS = f"""
import os, subprocess, sys
os.environ["{PARENT}"] = str(os.getpid())
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


def test_a_child_ends_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENTS, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        process_trees.wait_for_ends([child])


def test_a_child_whose_parent_has_ended_before_ends_at_once(tmp_path):
    environment = os.environ | {PARENT: "1", MESSAGES: str(tmp_path)}  # not the process that started it
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, timeout=60)
    assert done.returncode == -signal.SIGTERM
    assert [path.name.partition("-")[0] for path in tmp_path.iterdir()] == ["pid"]


def test_orphans_that_do_not_end_are_killed(tmp_path):
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as orphan:
        orphan.stdout.readline()
        (tmp_path / f"pid-{orphan.pid}").touch()
        wait_for_orphans(tmp_path, 0.0)
        assert orphan.wait(timeout=60) == -signal.SIGKILL
