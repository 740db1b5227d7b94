"""The routes of the viewer's server (all in `build_app`). Request bodies are checked here by pydantic models."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import gt
from pathlib import Path
from typing import TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.viewer.accuracy import accuracy_series
from bigbatch.viewer.document import FilterDocument
from bigbatch.viewer.exports import ExportKind, write_export_files
from bigbatch.viewer.guard import RequestGuard, SessionKeys
from bigbatch.viewer.overrides import Action, HistoryStep
from bigbatch.viewer.requests import RequestError, decode_samples
from bigbatch.viewer.settings import FilterSettings

STATIC = Path(__file__).parent / "static"
_LONG_POLL_SECONDS = 25.0
_MAX_NEIGHBOURS = 100
_MAX_DIGITS = 18
_MAX_SENTENCE_LENGTH = 500  # characters: a quoted value may have megabytes
_MEDIA_TYPES = {".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml"}

Body = TypeVar("Body", bound=BaseModel)


class _StrictBody(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class TokenBody(_StrictBody):
    token: str


class OverrideBody(_StrictBody):
    action: Action
    reason: str = Field("", max_length=1000)
    samples: list[int] | None = None
    bits: str | None = None


class ClustersBody(_StrictBody):
    min_samples: int
    eps: list[float | None]


class ExportBody(_StrictBody):
    kind: ExportKind


class ChangeNotifier:
    """Requests wait for a change, in whatever event loop; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        self._closed = False

    async def wait_until(self, changed: Callable[[], bool], seconds: float) -> None:
        """Wait until `changed()`, until the time is over, or until the server ends."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        event = asyncio.Event()
        with self._lock:
            self._waiting.add((loop, event))
        try:
            # checked after the event is registered, so that no change in between is missed
            while not changed() and not self._closed:
                event.clear()
                async with asyncio.timeout_at(deadline):
                    await event.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiting.discard((loop, event))

    def notify(self) -> None:
        with self._lock:
            for loop, event in self._waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        self._closed = True
        self.notify()


@dataclass
class ViewerRoutes:
    """The endpoints, and what they work on."""

    documents: Sequence[FilterDocument]
    keys: SessionKeys
    runs_dir: Path
    changes: ChangeNotifier = field(default_factory=ChangeNotifier)

    # -- signing in

    async def open_session(self, request: Request) -> Response:
        session = self.keys.exchange_token((await _read_body(request, TokenBody)).token)
        if session is None:
            raise RequestError(
                "this address was used already, or belongs to a server that has ended: open the newest address that "
                "'bigbatch view' printed",
                403,
            )
        return JSONResponse({"session": session})

    # -- reading

    async def list_documents(self, request: Request) -> Response:
        self._check_sources()
        return JSONResponse({"documents": [_describe_document(*item) for item in enumerate(self.documents)]})

    async def get_column(self, request: Request) -> Response:
        document, name = self._document(request), request.path_params["name"]
        values = await run_in_threadpool(
            document.column, name, _query_number(request, "min_samples", document.settings.min_samples)
        )
        return Response(values.tobytes(), media_type="application/octet-stream")

    async def compute_clusters(self, request: Request) -> Response:
        document, body = self._document(request), await _read_body(request, ClustersBody)
        labels = await run_in_threadpool(document.points.cluster_labels, body.min_samples, body.eps)
        return Response(labels.astype("<i4").tobytes(), media_type="application/octet-stream")

    async def get_neighbours(self, request: Request) -> Response:
        document, sample = self._document(request), request.path_params["sample"]
        count = _query_number(request, "count", 8)
        if not 1 <= count <= _MAX_NEIGHBOURS:
            raise RequestError(f"count must be 1 to {_MAX_NEIGHBOURS}, got {count}: ask for fewer neighbours")
        return JSONResponse(await run_in_threadpool(document.points.nearest_neighbours, sample, count))

    async def get_sprite(self, request: Request) -> Response:
        document, texts = self._document(request), request.query_params.get("samples", "").split(",")
        thumbnails = document.require_thumbnails()
        if len(texts) > thumbnails.layout.per_sprite:
            raise RequestError(f"a sprite has at most {thumbnails.layout.per_sprite} samples, got {len(texts)}")
        samples = [_parse_number("samples", text) for text in texts]
        for sample in samples:
            document.points.check_sample(sample)
        return Response(await run_in_threadpool(thumbnails.encode_sprite_png, samples), media_type="image/png")

    async def get_image(self, request: Request) -> Response:
        document, sample = self._document(request), request.path_params["sample"]
        document.points.check_sample(sample)
        # the browser may keep it: it depends on dataset and sample, never on the filter
        tag = f'"{document.saved.dataset_hash[:32]}-{sample}"'
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        png = await run_in_threadpool(document.require_thumbnails().encode_full_size_png, sample)
        return Response(png, media_type="image/png", headers=headers)

    async def get_accuracy(self, request: Request) -> Response:
        series = await run_in_threadpool(accuracy_series, self._document(request), self.runs_dir)
        return JSONResponse({"series": [asdict(one) for one in series]})

    async def get_overrides(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._document(request).override_log))

    # -- changing

    async def add_override(self, request: Request) -> Response:
        document, body = self._document(request), await _read_body(request, OverrideBody)

        def override() -> int:
            samples = decode_samples(body.samples, body.bits, len(document))
            return document.override(body.action, body.reason, samples)

        return await self._change(override)

    async def step_history(self, step: HistoryStep, request: Request) -> Response:
        return await self._change(partial(self._document(request).step_history, step))

    async def change_settings(self, request: Request) -> Response:
        document, settings = self._document(request), await _read_body(request, FilterSettings)
        return await self._change(partial(document.change_settings, settings))

    async def _change(self, change: Callable[[], int]) -> Response:
        self._check_sources()
        revision = await run_in_threadpool(change)
        self.changes.notify()
        return JSONResponse({"revision": revision})

    async def wait_for_changes(self, request: Request) -> Response:
        """Wait for all documents at once: a browser has six connections to a server, for all tabs together."""
        texts = request.query_params.get("since", "").split(",")
        valid = (text.isdecimal() and len(text) <= _MAX_DIGITS for text in texts)
        if len(texts) != len(self.documents) or not all(valid):
            raise RequestError(
                f"since={','.join(texts)!r} must be a revision for each of {len(self.documents)} documents"
            )
        since = [int(text) for text in texts]
        await self.changes.wait_until(lambda: any(map(gt, self._revisions(), since)), _LONG_POLL_SECONDS)
        return JSONResponse({"revisions": self._revisions()})

    def _check_sources(self) -> None:
        for document in self.documents:
            document.check_source()

    def _revisions(self) -> list[int]:
        return [document.revision for document in self.documents]

    # -- exporting

    async def write_export(self, request: Request) -> Response:
        document, body = self._document(request), await _read_body(request, ExportBody)
        files = await run_in_threadpool(write_export_files, document, body.kind)
        return JSONResponse({"files": files, "folder": str(document.export_folder)})

    async def download_export(self, request: Request) -> Response:
        path = self._document(request).exported_files.get(request.path_params["name"])
        if path is None or not path.is_file():
            raise RequestError("there is no export of that name from this session: export it first", 404)
        return FileResponse(path, filename=path.name)

    def _document(self, request: Request) -> FilterDocument:
        number = cast(int, request.path_params["d"])
        if number >= len(self.documents):
            raise RequestError(f"there is no document {number}: there are {len(self.documents)}", 404)
        return self.documents[number]


def build_app(viewer: ViewerRoutes, host: str, *, framed: bool = False) -> RequestGuard:
    """Return the ASGI app behind its guard."""
    routes = [
        Route("/api/session", viewer.open_session, methods=["POST"]),
        Route("/api/documents", viewer.list_documents),
        Route("/api/changes", viewer.wait_for_changes),
        Route("/api/{d:int}/columns/{name}", viewer.get_column),
        Route("/api/{d:int}/clusters", viewer.compute_clusters, methods=["POST"]),
        Route("/api/{d:int}/neighbours/{sample:int}", viewer.get_neighbours),
        Route("/api/{d:int}/sprite", viewer.get_sprite),
        Route("/api/{d:int}/image/{sample:int}", viewer.get_image),
        Route("/api/{d:int}/accuracy", viewer.get_accuracy),
        Route("/api/{d:int}/overrides", viewer.get_overrides),
        Route("/api/{d:int}/overrides", viewer.add_override, methods=["POST"]),
        Route("/api/{d:int}/undo", partial(viewer.step_history, "undo"), methods=["POST"]),
        Route("/api/{d:int}/redo", partial(viewer.step_history, "redo"), methods=["POST"]),
        Route("/api/{d:int}/settings", viewer.change_settings, methods=["POST"]),
        Route("/api/{d:int}/export", viewer.write_export, methods=["POST"]),
        Route("/api/{d:int}/exports/{name}", viewer.download_export),
        Route("/", partial(_serve_static, STATIC / "index.html")),
        # one route per file that exists, so that no path can lead out of the folder
        *(
            Route(f"/{path.relative_to(STATIC).as_posix()}", partial(_serve_static, path))
            for path in sorted(STATIC.rglob("*"))
            if path.suffix in _MEDIA_TYPES
        ),
    ]
    app = Starlette(routes=routes)
    for kind in (Problem, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _answer_error)
    return RequestGuard(app, viewer.keys, host, framed=framed)


def _describe_document(number: int, document: FilterDocument) -> dict[str, object]:
    info = document.manifest.info
    return {
        "id": str(number),
        "name": document.path.name,
        "samples": len(document),
        "classes": document.classes,
        "dataset": document.manifest.dataset.config["name"],
        "network": info.get("network", {}).get("network"),
        "revision": document.revision,
        "settings": document.settings.model_dump(),
        "min_samples_max": document.points.max_min_samples,
        "columns": document.columns(),
        "images": None if document.thumbnails is None else asdict(document.thumbnails.layout),
        "notes": [*document.notes, *info.get("notes", [])],
    }


async def _serve_static(path: Path, request: Request) -> Response:
    """Return a file of the page."""
    headers = {"cache-control": "no-cache"}
    return Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix], headers=headers)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer in a sentence. The traceback of an error of the server itself goes to the terminal."""
    match error:
        case ClientDisconnect():
            return Response(status_code=499)
        case Problem():
            sentence, status = str(error), error.status if isinstance(error, RequestError) else 422
        case HTTPException(status_code=status):
            sentence = f"{request.method} {request.url.path} is not known to this server: reload the page"
        case _:
            status = 500
            traceback.print_exception(error)
            sentence = (
                f"the server failed ({type(error).__name__}; see its terminal): everything up to your last change is "
                "saved, try again"
            )
    return JSONResponse({"problem": sentence}, status)


async def _read_body(request: Request, kind: type[Body]) -> Body:
    try:
        return kind.model_validate(json.loads(await request.body()))
    except ValidationError as error:
        raise RequestError(parts.explain_validation_error(error, "the request", kind)[:_MAX_SENTENCE_LENGTH]) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is not JSON ({error}): reload the page", 400) from error


def _query_number(request: Request, name: str, default: int) -> int:
    return _parse_number(name, request.query_params.get(name, str(default)))


def _parse_number(name: str, text: str) -> int:
    # int() takes more than digits ("1_0", " 1", digits of other scripts)
    if not re.fullmatch(rf"-?[0-9]{{1,{_MAX_DIGITS}}}", text):
        raise RequestError(f"{name}={text[:_MAX_DIGITS]!r} is not a whole number: reload the page")
    return int(text)
