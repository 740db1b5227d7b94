"""Names of functions and files coincide: importing the files must leave the functions in place, and torch alone."""

from __future__ import annotations

import subprocess
import sys

from bigbatch import parts, schedules


def test_functions_keep_their_names_when_every_part_is_imported():
    for name in parts.names("schedules"):
        parts.find("schedules", name)
    assert schedules.constant().kind == "constant"
    assert schedules.legw(schedules.Baseline(0.1, 128), 512).lr == 0.2
    assert schedules.goyal(schedules.Baseline(0.1, 128), 512).lr == 0.4


def test_schedules_and_batch_sizes_do_not_import_torch():
    code = "import sys, bigbatch.schedules, bigbatch.batch_sizes.increase; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
