"""An .npz file with `labels` and, optionally, `images`, `classes`, `features` and `map`, as numpy writes it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bigbatch import parts
from bigbatch.datasets import Dataset
from bigbatch.datasets.reading.hashing import hash_array, hash_json
from bigbatch.errors import Problem

_LOCAL_HEADER_BYTES = 30  # of a zip's member, before its name and extra field
_MOST_CLASSES = 2**16
_SHAPE_WITHOUT_IMAGES = (1, 1, 1)


class Config(parts.Config):
    path: str


class ArraySamples:
    """Samples with labels; images are None where the file has none."""

    lazy = False
    sequential = False

    def __init__(self, labels: Tensor, images: NDArray[np.uint8] | None) -> None:
        self.labels, self.images = labels, images

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        """Pixels in 0..1; zeros where there are no images."""
        if self.images is None:
            return torch.zeros(len(indices), *_SHAPE_WITHOUT_IMAGES), self.labels[indices]
        pixels = torch.from_numpy(np.asarray(self.images[indices.numpy()]))
        pixels = pixels[..., None] if pixels.ndim == 3 else pixels
        return pixels.permute(0, 3, 1, 2).float().div_(255), self.labels[indices]


def load(config: Config, data_dir: Path | None = None) -> Dataset:
    """Load the file as training and test set. The hash covers labels, classes and images, not path or features."""
    path = Path(config.path)
    arrays = open_npz(path)
    labels, classes = _read_labels(path, arrays)
    images = _read_images(path, arrays, len(labels))
    samples = ArraySamples(labels, images)
    content: dict[str, str | tuple[str, ...]] = {"labels": hash_array(labels.numpy()), "classes": classes}
    shape = _SHAPE_WITHOUT_IMAGES
    if images is not None:
        content["images"] = hash_array(images)
        shape = (images.shape[3] if images.ndim == 4 else 1, *images.shape[1:3])
    return Dataset(samples, samples, classes, shape, hash_json(content))


def read_map(path: Path, samples: int) -> NDArray[np.float32]:
    """Read the map in the file: x and y of each sample."""
    places = open_npz(path).get("map")
    if places is None:
        raise Problem(f"{path} has no 'map': use the filter 'network' on its features")
    if places.shape != (samples, 2) or places.dtype.kind not in "fiu" or not np.isfinite(places).all():
        raise Problem(
            f"the map in {path} is {places.dtype} of shape {places.shape}, or not finite: give {samples} x 2 numbers"
        )
    return np.ascontiguousarray(places, np.float32)


def open_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Open the arrays of an .npz by name, memory-mapped if they are stored uncompressed, as np.savez does."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked_size(path, archive)
            return {
                info.filename.removesuffix(".npy"): _read_or_map_array(path, archive, info)
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
    except Problem:
        raise
    except Exception as error:  # of any kind: a damaged zip, header or type
        raise Problem(f"{path} cannot be read ({error}): give a complete .npz, as np.savez writes it") from error


def check_unpacked_size(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse an archive that unpacks to far more than arrays of its size do, before anything is unpacked."""
    unpacked, packed = sum(info.file_size for info in archive.infolist()), path.stat().st_size
    if unpacked > (64 << 20) + 50 * packed:
        raise Problem(
            f"{path} has {packed:,} bytes and would unpack to {unpacked:,}: save it uncompressed, with np.savez"
        )


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether it is stored by columns, and dtype of an .npy file; its data come next."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, in_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return shape, in_columns, dtype


def _read_or_map_array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        shape, in_columns, dtype = read_npy_header(member)
        header_bytes = member.tell()
    if info.compress_type != zipfile.ZIP_STORED or 0 in shape or not shape:
        with archive.open(info) as member:
            return np.lib.format.read_array(member, allow_pickle=False)
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    begin = info.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes + header_bytes
    return np.memmap(path, dtype, "r", begin, shape, "F" if in_columns else "C")


def _read_labels(path: Path, arrays: dict[str, NDArray[Any]]) -> tuple[Tensor, tuple[str, ...]]:
    if "labels" not in arrays:
        raise Problem(f"{path} holds {', '.join(arrays) or 'nothing'} but no 'labels': add one for each sample")
    labels = np.asarray(arrays["labels"])
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iuUS":
        raise Problem(f"the labels in {path} are {labels.dtype} of shape {labels.shape}: give one number per sample")
    if labels.dtype.kind in "US":
        names, labels = np.unique(labels.astype(str), return_inverse=True)
    elif "classes" in arrays:
        names = np.asarray(arrays["classes"]).astype(str)
    else:
        if labels.max() >= _MOST_CLASSES:
            raise Problem(f"the labels in {path} go up to {labels.max()}: number them from 0, or give 'classes'")
        names = np.arange(int(labels.max()) + 1).astype(str)
    if labels.min() < 0 or labels.max() >= len(names) or len(set(names.tolist())) != len(names):
        raise Problem(
            f"the labels in {path} go from {labels.min()} to {labels.max()} but there are {len(set(names.tolist()))} "
            "classes: number them from 0, and give 'classes' one name for each"
        )
    return torch.from_numpy(labels.astype(np.int64)), tuple(names.tolist())


def _read_images(path: Path, arrays: dict[str, NDArray[Any]], samples: int) -> NDArray[np.uint8] | None:
    images = arrays.get("images")
    if images is None:
        return None
    channels = images.shape[3] if images.ndim == 4 else 1
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) != samples or channels not in (1, 3):
        raise Problem(
            f"the images in {path} are {images.dtype} of shape {images.shape}: give uint8 of {samples} x height x "
            "width, or with 3 colour channels last"
        )
    return images
