"""How ranks on other hosts are started."""

from __future__ import annotations

import shlex
import sys

from bigbatch.scaling import hosts


def test_hosts_are_reached_by_ssh_or_within_a_job_by_srun(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    first, second = hosts.build_host_commands(["me@a", "b"], 4, "some.module", ["it's one argument"])
    assert first[:6] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "me@a"]
    words = shlex.split(first[6])  # as the other side's shell does
    assert words[:3] == ["env", "OMP_NUM_THREADS=1", sys.executable]
    assert {"--nnodes=2", "--nproc-per-node=2", "--master-addr=a", "--node-rank=0"} < set(words)
    assert words[-3:] == ["-m", "some.module", "it's one argument"]
    assert "--node-rank=1" in shlex.split(second[6])
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (alone,) = hosts.build_host_commands(["a", "b"], 1, "some.module", [])
    assert alone[:2] == ["srun", "--nodes=1"]
    assert "--nodelist=a" in alone
    assert alone[-3:] == [sys.executable, "-m", "some.module"]
