"""A digits filter that is made in a second, and a page's way to talk to the server that shows it."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from bigbatch import datasets, parts
from bigbatch.curation import FilterRequest, filter_dataset
from bigbatch.datasets.reading.lazy_images import LazyImageConfig, LazyImages
from bigbatch.viewer import routes, server
from bigbatch.viewer.guard import SessionKeys

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a successor to httpx
    from starlette.testclient import TestClient

BASE = "http://127.0.0.1:8642"
# no t-SNE, which takes seconds: two principal components are a map too
FLAT = {"reducer": "none", "components": 2}


class Net(nn.Module):
    """Random but the same each time."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.hidden, self.head = nn.Sequential(nn.Flatten(), nn.Linear(64, 16)), nn.Linear(16, 10)
        with torch.no_grad():
            self.hidden[1].weight.mul_(5)  # so wide a map that the paper's eps of 0.5 drops some and keeps most

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


def digits() -> datasets.Dataset:
    return datasets.load(parts.configure("datasets", "digits"))


class Drawn(LazyImages):
    """Pictures without files: sample i is a square of the grey i."""

    def open(self, sample: int) -> Image.Image:
        return Image.new("RGB", (10, 10), (sample,) * 3)

    def describe(self, sample: int) -> str:
        return f"square {sample}"


class Numbers:
    """Samples of somebody's own: nothing but what the contract asks for."""

    lazy, sequential = False, False

    def __init__(self, labels: Tensor) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def fetch(self, indices: Tensor, *, seed: int = 0, epoch: int | None = None) -> tuple[Tensor, Tensor]:
        ramp = torch.linspace(-1, 1, 12).reshape(1, 3, 4)
        return ramp * (1 + indices.float())[:, None, None, None], self.labels[indices]


def own_dataset(kind: str) -> datasets.Dataset:
    """A user's dataset, as `viewer_pages:own_dataset`."""
    labels = torch.arange(40) % 2
    config = LazyImageConfig(size=8, resize=8, augment="none", mean=(0.0,) * 3, std=(1.0,) * 3, workers=0)
    samples = Drawn(labels, config) if kind == "drawn" else Numbers(labels)
    shape = (3, 8, 8) if kind == "drawn" else (1, 3, 4)
    return datasets.Dataset(samples, samples, ("even/", ".."), shape, kind)


def make_kept(out: Path, dataset: str = "digits", network: str = "viewer_pages:Net", **options: Any) -> Path:
    """By the real filter."""
    settings = [f"{name}={value}" for name, value in (FLAT | options).items()]
    filter_dataset(FilterRequest(dataset, out=out, network=network, settings=settings, quiet=True))
    return out


class Page:
    """A browser's tab, without the browser."""

    def __init__(self, client: Any, session: str) -> None:
        self.client = client
        self.client.headers["authorization"] = f"Bearer {session}"

    def get(self, path: str, **options: Any) -> Any:
        return self.client.get(f"/api/{path}", **options)

    def post(self, path: str, body: Any = None) -> Any:
        return self.client.post(f"/api/{path}", json={} if body is None else body)

    def about(self, document: int = 0) -> dict[str, Any]:
        return self.get("documents").json()["documents"][document]

    def column(self, name: str, dtype: str, query: str = "") -> np.ndarray[Any, Any]:
        answer = self.get(f"0/columns/{name}{query}")
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return np.frombuffer(answer.content, dtype)

    def set(self, **changes: Any) -> Any:
        return self.post("0/settings", self.about()["settings"] | changes)

    def exported(self, kind: str) -> list[Path]:
        answer = self.post("0/export", {"kind": kind})
        assert answer.status_code == 200, answer.text
        return [Path(answer.json()["folder"]) / name for name in answer.json()["files"]]


class OpenedDocuments:
    """The app without a port: documents, the keys to it, and pages that have signed in."""

    def __init__(self, paths: list[Path], runs_dir: Path = Path("nowhere"), out: Path | None = None) -> None:
        self.documents = server.open_documents(paths, None, out)
        self.keys = SessionKeys()
        viewer = routes.ViewerRoutes(self.documents, self.keys, runs_dir)
        self.app = routes.build_app(viewer, "127.0.0.1")

    @contextmanager
    def client(self, **options: Any) -> Iterator[TestClient]:
        with TestClient(self.app, base_url=BASE, **options) as client:
            yield client

    @contextmanager
    def page(self, **options: Any) -> Iterator[Page]:
        with self.client(**options) as client:
            answer = client.post("/api/session", json={"token": self.keys.new_token()})
            yield Page(client, answer.json()["session"])

    def close(self) -> None:
        for document in self.documents:
            document.close()


@contextmanager
def open_documents(*paths: Path, **options: Any) -> Iterator[OpenedDocuments]:
    opened = OpenedDocuments(list(paths), **options)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def open_page(*paths: Path, **options: Any) -> Iterator[Page]:
    with open_documents(*paths, **options) as opened, opened.page() as page:
        yield page


@contextmanager
def full_disk(path: Path, room_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond the size of this one and a little."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def page_mask(page: Page) -> np.ndarray[Any, Any]:
    """What the page shows: by the rule of the contract, from columns alone."""
    settings = page.about()["settings"]
    eps = np.array(settings["eps"], float)
    eps_star = page.column("eps_star", "<f8", f"?min_samples={settings['min_samples']}")
    dropped = (eps[page.column("label", "<u2")] < eps_star) | (page.column("considered", "u1") == 0)
    override = page.column("override", "i1")
    return np.where(override == -1, ~dropped, override == 1)
