"""Penn Treebank, by words (929,589 of 10,000 kinds) or characters (Marcus et al. 1993; split of Mikolov 2010)."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from bigbatch import parts
from bigbatch.datasets import Dataset, sha256
from bigbatch.datasets.reading.download import FileSet, Remote, check_size, locate_or_download, read_decompressed
from bigbatch.datasets.reading.text import UnsplitTokens
from bigbatch.errors import Problem

# bytes and SHA-256 of the published files
_PUBLISHED = {
    "ptb.train.txt": (5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    "ptb.valid.txt": (399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    "ptb.test.txt": (449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
}
FILES = FileSet(
    title="Penn Treebank",
    layouts=tuple(tuple(f"{folder}/{name}" for name in _PUBLISHED) for folder in ("ptb", "simple-examples/data")),
    address="http://www.fit.vutbr.cz/~imikolov/rnnlm/",
    remotes=(
        Remote(
            name="simple-examples.tgz",
            checksum="",
            size=34_869_662,
            members={f"simple-examples/data/{name}": f"sha256:{digest}" for name, (_, digest) in _PUBLISHED.items()},
        ),
    ),
)
END_OF_LINE, UNKNOWN = "<eos>", "<unk>"


class Config(parts.Config):
    """The length of a sample, and which part is the test set."""

    later_fields: ClassVar[tuple[str, ...]] = ("level", "shuffle")

    steps: int = Field(20, ge=1)  # tokens in a window: how far gradients reach back; 20 in the LEGW paper
    evaluate: Literal["test", "valid"] = "test"
    official: bool = True  # refuse other files than the published ones; False: any text in the same layout
    level: Literal["word", "character"] = "word"  # characters: 5,017,482 in the training text, of 50 kinds
    shuffle: bool = False  # windows in random order, for models without a hidden state; False: as continuing streams


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Tokens are numbered by descending frequency in the training text, then alphabetically."""
    paths = dict(zip(("train", "valid", "test"), locate_or_download(FILES, data_dir), strict=True))
    train_text = _read_tokens(paths["train"], config)
    test_text = _read_tokens(paths[config.evaluate], config)
    counts = Counter(train_text)
    vocabulary = tuple(sorted(counts, key=lambda token: (-counts[token], token)))
    number_of = {token: number for number, token in enumerate(vocabulary)}
    train = _number_tokens(train_text, number_of, paths["train"])
    test = _number_tokens(test_text, number_of, paths[config.evaluate])
    spelling = torch.from_numpy(np.frombuffer("\n".join(vocabulary).encode(), np.uint8).copy())
    return Dataset(
        train=UnsplitTokens(train, config.steps, shuffle=config.shuffle),
        test=UnsplitTokens(test, config.steps),
        classes=vocabulary,
        sample_shape=(config.steps,),
        hash=sha256(train, spelling),
        task="language",
    )


def _read_tokens(path: Path, config: Config) -> list[str]:
    """Words with a mark at each line's end; or characters, without the spaces around lines."""
    content = read_decompressed(path)
    if config.official:
        size, digest = _PUBLISHED[path.name.removesuffix(".gz")]
        check_size(path, expected=size, found=len(content))
        if hashlib.sha256(content).hexdigest() != digest:
            raise Problem(
                f"{path} has the right {size:,} bytes but other text than published: "
                "delete it to have it downloaded again, or set official=False"
            )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not UTF-8 text ({error}): convert it") from error
    if config.level == "character":
        tokens = list("".join(f"{line.strip()}\n" for line in text.splitlines()))
    else:
        tokens = text.replace("\n", f" {END_OF_LINE} ").split()
    if len(tokens) < 2:
        raise Problem(f"{path} has {len(tokens)} {config.level}s, at least 2 are needed: put the text there")
    return tokens


def _number_tokens(tokens: list[str], number_of: dict[str, int], path: Path) -> torch.Tensor:
    unknown = number_of.get(UNKNOWN, -1)
    numbers = torch.tensor([number_of.get(token, unknown) for token in tokens])
    if unknown < 0 and bool((numbers < 0).any()):
        missing = next(token for token in tokens if token not in number_of)
        raise Problem(f"{path} has '{missing}', which the training text lacks: add {UNKNOWN} to the training text")
    return numbers
