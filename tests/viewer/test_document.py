"""What a person did is on disk before the answer, and there again after any ending."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import numpy as np
import pytest
from viewer_pages import OpenedDocuments, full_disk, make_kept, open_documents, open_page

from bigbatch import filters
from bigbatch.errors import Notice, Problem


def log_of(kept):
    return kept.with_name("kept.view.jsonl")


def test_a_restart_finds_everything(kept):
    before = kept.read_bytes()
    with open_page(kept) as page:
        page.set(mode="manual", min_samples=7)
        page.post("0/overrides", {"action": "keep", "reason": "fine", "samples": [1, 2, 3]})
        page.post("0/overrides", {"action": "drop", "samples": list(range(100, 900))})
        page.post("0/undo")
        about, log, override = page.about(), page.get("0/overrides").json(), page.column("override", "i1")
    assert kept.read_bytes() == before
    with open_page(kept) as page:
        assert page.about() == about
        assert page.get("0/overrides").json() == log
        assert np.array_equal(page.column("override", "i1"), override)
        assert page.post("0/redo").json() == {"revision": 5}  # what was undone can still be redone
        assert (page.column("override", "i1") == 0).sum() == 800


def test_looking_leaves_nothing_behind(kept):
    files = set(kept.parent.iterdir())
    with open_page(kept) as page:
        page.about()
    assert set(kept.parent.iterdir()) == files


def test_the_log_is_on_disk_before_the_answer(kept):
    with open_page(kept) as page:
        for samples in ([5], list(range(600))):
            page.post("0/overrides", {"action": "drop", "reason": "ä", "samples": samples})
        lines = log_of(kept).read_bytes().split(b"\n")
        assert lines.pop() == b""
        header, few, many = map(json.loads, lines)
        assert header["event"] == "opened"
        assert few["samples"] == [5]
        assert few["at"].endswith("+00:00")
        assert "bits" in many


def test_a_line_that_was_cut_is_left_out_and_said(kept):
    with open_page(kept) as page:
        for sample in (1, 2):
            page.post("0/overrides", {"action": "drop", "samples": [sample]})
    whole = log_of(kept).read_bytes()
    for cut_bytes in (1, 20):
        log_of(kept).write_bytes(whole[:-cut_bytes])
        with pytest.warns(Notice, match="was cut short"):
            opened = OpenedDocuments([kept])
        with closing(opened), opened.page() as page:
            assert np.flatnonzero(page.column("override", "i1") == 0).tolist() == [1]
            page.post("0/overrides", {"action": "drop", "samples": [3]})  # goes on behind the last whole line
        with open_page(kept) as page:
            assert np.flatnonzero(page.column("override", "i1") == 0).tolist() == [1, 3]


def test_a_line_in_the_middle_that_makes_no_sense_is_named(kept):
    with open_page(kept) as page:
        for sample in (1, 2):
            page.post("0/overrides", {"action": "drop", "samples": [sample]})
    header, first, second = log_of(kept).read_text().splitlines()
    for wrong in ('{"event": "ov', '{"event": "dance"}', '{"event": "undo"}', first.replace("[1]", "[5000]"), "[]"):
        log_of(kept).write_text("\n".join([header, wrong, second]) + "\n")
        with pytest.raises(Problem, match=r"line 2 of .*kept.view.jsonl"), open_documents(kept):
            pass
    log_of(kept).write_text(f"{header}\n{first}\n{second}\n")
    with open_page(kept) as page:  # nothing holds the file any more
        assert page.about()["revision"] == 2


def test_a_full_disk_is_said_and_costs_nothing(kept):
    with open_page(kept) as page:
        page.post("0/overrides", {"action": "drop", "samples": [1]})
        before = log_of(kept).read_bytes()
        with full_disk(log_of(kept), 30):  # part of a line fits
            answer = page.post("0/overrides", {"action": "drop", "samples": [2]})
        assert answer.status_code == 507
        assert "free space there, then repeat" in answer.json()["problem"]
        assert log_of(kept).read_bytes() == before
        assert page.about()["revision"] == 1
        assert page.post("0/overrides", {"action": "drop", "samples": [2]}).json()["revision"] == 2


def test_one_server_for_a_file(kept):
    with open_documents(kept), pytest.raises(Problem, match="is being viewed by another server"), open_documents(kept):
        pass
    with open_documents(kept):
        pass


def test_a_filter_made_again_keeps_overrides_and_takes_its_own_settings(kept):
    with open_page(kept) as page:
        page.set(mode="manual")
        page.post("0/overrides", {"action": "drop", "samples": [7]})
    make_kept(kept, components=3, drop=0.2)  # the first two components, and so the map, are the same
    with open_page(kept) as page:
        about = page.about()
        assert (about["settings"]["mode"], about["settings"]["drop"]) == ("fraction", 0.2)
        assert any("was made again" in note for note in about["notes"])
        assert page.column("override", "i1")[7] == 0
        page.set(drop=0.15)
    with open_page(kept) as page:  # settings of the new file hold from then on
        assert page.about()["settings"]["drop"] == 0.15
        assert not any("was made again" in note for note in page.about()["notes"])


def test_a_log_of_another_dataset_is_refused(kept):
    with open_page(kept) as page:
        page.post("0/overrides", {"action": "drop", "samples": [7]})
    text = log_of(kept).read_text()
    log_of(kept).write_text(text.replace(filters.load(kept).dataset_hash, "0" * 64))
    with pytest.raises(Problem, match=r"belongs to another dataset.*move it away"), open_documents(kept):
        pass


def test_overrides_that_stand_in_the_file_show_and_can_be_decided_otherwise(kept):
    saved = filters.override(filters.load(kept), [4, 5], keep=False, reason="blurred")
    filters.override(saved, [5], keep=None, reason="on second thoughts")
    with open_page(kept) as page:
        assert page.column("override", "i1")[[4, 5]].tolist() == [0, -1]
        log = page.get("0/overrides").json()
        assert [entry["in_source"] for entry in log["entries"]] == [True, True]
        assert not log["can_undo"]
        assert page.post("0/undo").status_code == 409
        page.post("0/overrides", {"action": "reset", "samples": [4]})
        assert (page.column("override", "i1") == -1).all()
        result = page.exported("kept")[0]
    with open_page(result) as page:  # the history goes along
        assert len(page.get("0/overrides").json()["entries"]) == 3


def test_two_tabs_see_each_others_changes(kept):
    with open_documents(kept) as opened, opened.page() as one, opened.page() as other:
        told: list[int] = []
        begun = threading.Event()

        def wait():
            begun.set()
            told.extend(other.get("changes?since=0").json()["revisions"])

        waiting = threading.Thread(target=wait)
        waiting.start()
        begun.wait()
        assert one.post("0/overrides", {"action": "drop", "samples": [9]}).json()["revision"] == 1
        waiting.join(timeout=20)
        assert told == [1]
        assert other.column("override", "i1")[9] == 0
        assert other.post("0/undo").json()["revision"] == 2
        assert one.get("changes?since=1").json() == {"revisions": [2]}  # at once: it has changed already
        assert one.get("0/overrides").json()["can_redo"]


def test_many_changes_at_once_are_all_kept_in_one_order(kept):
    with open_documents(kept) as opened, opened.page() as one, opened.page() as other:
        revisions: list[int] = []

        def drop(page, samples):
            for sample in samples:
                answer = page.post("0/overrides", {"action": "drop", "samples": [sample]})
                revisions.append(answer.json()["revision"])

        threads = [
            threading.Thread(target=drop, args=(page, samples))
            for page, samples in ((one, range(20)), (other, range(20, 40)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(revisions) == list(range(1, 41))
    with open_page(kept) as page:
        assert np.flatnonzero(page.column("override", "i1") == 0).tolist() == list(range(40))


def test_a_source_that_changes_underneath_is_named(kept):
    with open_page(kept) as page:
        assert page.post("0/overrides", {"action": "drop", "samples": [1]}).status_code == 200
        before = log_of(kept).read_bytes()
        kept.write_bytes(kept.read_bytes() + b"x")
        for answer in (page.get("documents"), page.post("0/overrides", {"action": "drop", "samples": [2]})):
            assert answer.status_code == 409
            assert "kept.npz was changed or removed while it was open" in answer.json()["problem"]
        assert log_of(kept).read_bytes() == before
