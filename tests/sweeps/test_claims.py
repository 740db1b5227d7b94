"""Claims, held to by real processes: everything is won once, the dead are followed once."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace

from sweep_parts import ended_in, in_a_process

from bigbatch.sweeps.claims import Claims, Owner

NAMES = [f"point-{number}" for number in range(60)]


def take_all(folder, gate, log):
    """Wait for the start, then take what can be had."""
    open(gate).close()
    claims = Claims(folder)
    won = [name for name in NAMES if claims.claim(name)]
    with open(log, "a") as file:
        file.write("".join(f"{name}\n" for name in won))
    os.kill(os.getpid(), signal.SIGSTOP)  # alive until all have looked; then killed, so nothing is given back


def race(tmp_path, log):
    gate = tmp_path / f"gate-{log}"
    os.mkfifo(gate)
    racers = [in_a_process(take_all, tmp_path / "claims", gate, tmp_path / log) for _ in range(4)]
    with open(gate, "w"):
        for pid in racers:
            os.waitpid(pid, os.WUNTRACED)
    for pid in racers:
        os.kill(pid, signal.SIGKILL)
        ended_in(pid)
    return (tmp_path / log).read_text().splitlines()


def test_every_claim_is_won_by_one_of_four_processes(tmp_path):
    assert sorted(race(tmp_path, "first")) == sorted(NAMES)
    assert {path.name for path in (tmp_path / "claims").iterdir()} == {f"{name}.claim-1" for name in NAMES}


def test_claims_of_the_dead_are_taken_over_by_those_who_live_and_by_one_at_a_time(tmp_path):
    race(tmp_path, "first")
    taken = race(tmp_path, "second")
    assert sorted(taken) == sorted(NAMES)
    generations = [path.name.rpartition("-")[2] for path in (tmp_path / "claims").iterdir()]
    assert len(generations) == len(NAMES) + len(taken)


def test_a_live_holder_keeps_its_claim_until_it_gives_it_up(tmp_path):
    holder, other = Claims(tmp_path), Claims(tmp_path)
    assert holder.claim("a")
    assert not holder.claim("a")
    assert other.is_claimed("a")
    assert not other.claim("a")
    holder.release("a")
    assert not other.is_claimed("a")
    assert other.claim("a")
    assert not holder.claim("a")


def elsewhere(folder, name, generation=1):
    about = asdict(replace(Owner.current(), where="another machine", host="another"))
    (folder / f"{name}.claim-{generation}").write_text(json.dumps(about))


def test_a_holder_elsewhere_is_dead_when_its_claim_stays_untouched_while_we_watch(tmp_path):
    elsewhere(tmp_path, "a")
    os.utime(tmp_path / "a.claim-1", (1, 1))  # its clock is decades behind: that alone says nothing
    watcher = Claims(tmp_path, lease_seconds=0)
    assert not watcher.claim("a")  # the first look only notes the time
    os.utime(tmp_path / "a.claim-1", (2, 2))
    assert not watcher.claim("a")  # it was touched: alive
    assert watcher.claim("a")  # not touched since the last look, and the lease is over
    patient = Claims(tmp_path, lease_seconds=1000)
    elsewhere(tmp_path, "b")
    assert not any(patient.claim("b") for _ in range(3))


def test_a_holder_that_slept_too_long_learns_that_it_lost(tmp_path):
    sleeper = Claims(tmp_path, heartbeat_seconds=0)
    assert sleeper.claim("a")
    assert sleeper.claim("b")
    assert sleeper.send_heartbeat() == []
    elsewhere(tmp_path, "a", generation=2)
    assert sleeper.send_heartbeat() == ["a"]
    assert sleeper.mine == {"b": 1}


def test_a_beat_touches_the_claim(tmp_path):
    claims = Claims(tmp_path, heartbeat_seconds=0)
    claims.claim("a")
    os.utime(tmp_path / "a.claim-1", (1, 1))
    claims.send_heartbeat()
    assert (tmp_path / "a.claim-1").stat().st_mtime > 1e9


def test_a_claim_that_its_maker_had_no_time_to_write_is_watched_like_one_elsewhere(tmp_path):
    (tmp_path / "a.claim-1").touch()
    watcher = Claims(tmp_path, lease_seconds=0)
    assert not watcher.claim("a")
    assert watcher.claim("a")


def test_a_process_number_that_was_used_again_is_another_process():
    assert Owner.current().is_dead() is False
    assert replace(Owner.current(), begun="1").is_dead() is True
    assert replace(Owner.current(), where="another machine").is_dead() is None
    gone = in_a_process(lambda: None)
    assert ended_in(gone) == 0
    assert replace(Owner.current(), pid=gone).is_dead() is True
