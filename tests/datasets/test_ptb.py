from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.datasets import load as load_dataset
from bigbatch.datasets.reading.text import UnsplitTokens
from bigbatch.errors import Problem


def write(folder: Path, **texts: str) -> Path:
    defaults = {"train": " b a b \n c b <unk> \n", "valid": " a \n", "test": " b zebra \n"}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (defaults | texts).items():
        (folder / f"ptb.{name}.txt").write_text(text)
    return folder


def load(folder: Path | None, **options: Any) -> Dataset:
    return load_dataset(parts.configure("datasets", {"name": "ptb", **options}), folder)


def tokens(samples: Any) -> UnsplitTokens:
    assert isinstance(samples, UnsplitTokens)
    return samples


@pytest.mark.parametrize("place", ["ptb", "simple-examples/data"])
def test_words_are_numbered_by_frequency_then_alphabet(tmp_path: Path, place: str) -> None:
    write(tmp_path / place)
    dataset = load(tmp_path, steps=2, official=False)
    # b 3 times, <eos> 2, then once each in the order of their letters
    assert dataset.classes == ("b", "<eos>", "<unk>", "a", "c")
    assert tokens(dataset.train).tokens.tolist() == [0, 3, 0, 1, 4, 0, 2, 1]
    assert tokens(dataset.test).tokens.tolist() == [0, 2, 1]  # zebra is unknown
    assert tokens(load(tmp_path, evaluate="valid", official=False).test).tokens.tolist() == [3, 1]
    assert (dataset.task, dataset.sample_shape) == ("language", (2,))


def test_characters_leave_out_the_spaces_around_lines(tmp_path: Path) -> None:
    write(tmp_path / "ptb", train=" ab a \n b \n", test=" a \n")
    dataset = load(tmp_path, steps=2, official=False, level="character")
    # a, b and the end of a line twice each, one space: equal counts in the order of their codes
    assert dataset.classes == ("\n", "a", "b", " ")
    assert tokens(dataset.train).tokens.tolist() == [1, 2, 3, 1, 0, 2, 0]
    assert tokens(dataset.test).tokens.tolist() == [1, 0]


def test_level_and_shuffle_are_left_out_of_files_at_their_defaults() -> None:
    config = parts.configure("datasets", {"name": "ptb", "level": "word", "shuffle": True})
    assert config.model_dump() == {"name": "ptb", "steps": 20, "evaluate": "test", "official": True, "shuffle": True}


def test_shuffled_windows_are_the_same_for_every_batch() -> None:
    text = UnsplitTokens(torch.arange(24), steps=5, shuffle=True)
    for streams in (1, 3):
        windows = text.as_streams(streams)
        assert not windows.sequential
        assert len(windows) == 4
        assert windows.fetch(torch.tensor([3, 0]))[0].tolist() == [[15, 16, 17, 18, 19], [0, 1, 2, 3, 4]]


def test_a_word_that_training_lacks_is_refused_where_there_is_no_unk(tmp_path: Path) -> None:
    write(tmp_path / "ptb", train=" b a \n")
    with pytest.raises(Problem, match=r"ptb\.test\.txt has 'zebra', which the training text lacks"):
        load(tmp_path, official=False)


def test_spelling_is_part_of_the_hash(tmp_path: Path) -> None:
    write(tmp_path / "a/ptb", train="one two <unk>\n")
    write(tmp_path / "b/ptb", train="one twx <unk>\n")  # the same numbers
    a, b = load(tmp_path / "a", official=False), load(tmp_path / "b", official=False)
    assert tokens(a.train).tokens.tolist() == tokens(b.train).tokens.tolist()
    assert a.hash != b.hash


def test_other_than_the_published_text_is_refused_by_default(tmp_path: Path) -> None:
    write(tmp_path / "ptb", train=" a b \n" * 10)
    with pytest.raises(Problem, match=r"ptb\.train\.txt is not complete: expected 5,101,618 bytes, found 60"):
        load(tmp_path)


def test_streams_continue_from_batch_to_batch() -> None:
    # 24 tokens, 23 to predict: 3 streams of 7, windows of 2 begin at 0 2 4, 7 9 11, 14 16 18
    windows = UnsplitTokens(torch.arange(100, 124), steps=2).as_streams(3)
    assert len(windows) == 9
    first = windows.fetch(torch.tensor([0, 1, 2]))
    second = windows.fetch(torch.tensor([3, 4, 5]))
    assert first[0].tolist() == [[100, 101], [107, 108], [114, 115]]
    assert first[1].tolist() == [[101, 102], [108, 109], [115, 116]]
    assert second[0].tolist() == [[102, 103], [109, 110], [116, 117]]
    assert windows.fetch(torch.tensor([8, 3]))[0].tolist() == [[118, 119], [102, 103]]


def test_the_last_window_may_use_the_last_token() -> None:
    inputs, targets = UnsplitTokens(torch.arange(9), steps=4).as_streams(2).fetch(torch.tensor([0, 1]))
    assert inputs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert targets.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_too_many_streams_name_the_largest_batch() -> None:
    text = UnsplitTokens(torch.arange(101), steps=10)
    with pytest.raises(Problem, match="a global batch of at most 10,"):
        text.as_streams(11)
    assert len(text.as_streams(10)) == 10


@pytest.mark.parametrize(("length", "streams", "steps"), [(24, 3, 2), (24, 5, 4), (2, 3, 5), (11, 1, 3), (50, 7, 100)])
def test_evaluation_predicts_every_token_exactly_once(length: int, streams: int, steps: int) -> None:
    text = UnsplitTokens(torch.arange(length), steps)
    predicted: list[int] = []
    for inputs, targets, mask in text.evaluation_windows(streams):
        assert inputs.shape == targets.shape == mask.shape
        assert inputs.shape[0] == streams
        assert inputs.shape[1] <= steps
        assert torch.equal(inputs[mask] + 1, targets[mask])  # the next token of a counting text
        predicted += targets[mask].tolist()
    assert sorted(predicted) == list(range(1, length))


def test_evaluation_streams_carry_on() -> None:
    items = [inputs[1].tolist() for inputs, _, _ in UnsplitTokens(torch.arange(13), steps=4).evaluation_windows(2)]
    assert items == [[6, 7, 8, 9], [10, 11]]


@pytest.mark.realdata
def test_the_real_characters() -> None:
    dataset = load(None, level="character")
    assert (len(dataset.train), len(dataset.classes)) == (5_017_482, 50)


@pytest.mark.realdata
def test_the_real_text() -> None:
    dataset = load(None)
    assert (len(dataset.train), len(dataset.test), len(load(None, evaluate="valid").test)) == (929_589, 82_430, 73_760)
    assert len(dataset.classes) == 10_000
    assert dataset.classes[:5] == ("the", "<unk>", "<eos>", "N", "of")
    assert [dataset.classes[number] for number in tokens(dataset.train).tokens[:3]] == ["aer", "banknote", "berlitz"]
