"""The routes of the viewer's server (all of them in `build`). What comes in is checked here, in pydantic models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import gt
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from bigbatch import __version__, parts
from bigbatch.errors import Problem
from bigbatch.viewer import accuracy, compare, copies, exports
from bigbatch.viewer.changes import Changes
from bigbatch.viewer.decide import Settings
from bigbatch.viewer.document import Document
from bigbatch.viewer.guard import Guard, Keys
from bigbatch.viewer.refused import Refused

STATIC = Path(__file__).parent / "static"
_SECONDS_OF_A_LONG_POLL = 25.0
_MOST_NEIGHBOURS = 100
_MOST_DIGITS = 18
_LONGEST_SENTENCE = 500  # characters: what is quoted may be megabytes
_MEDIA_TYPES = {".js": "text/javascript", ".html": "text/html", ".css": "text/css", ".svg": "image/svg+xml"}

Body = TypeVar("Body", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Token(_Body):
    token: str


class _Override(_Body):
    action: Literal["keep", "drop", "reset"]
    reason: str = Field("", max_length=1000)
    samples: list[int] | None = None
    bits: str | None = None


class _Clusters(_Body):
    min_samples: int
    eps: list[float | None]


class _Export(_Body):
    kind: Literal["kept", "csv", "copy"]


@dataclass
class Viewer:
    """All that the routes work on."""

    documents: Sequence[Document]
    keys: Keys
    changes: Changes
    runs_dir: Path
    command: str

    # -- signing in

    async def session(self, request: Request) -> Response:
        session = self.keys.session_for((await _body(request, _Token)).token)
        if session is None:
            raise Refused(
                "this address was used already, or belongs to a server that has ended: open the newest one that "
                "'bigbatch view' printed",
                403,
            )
        return JSONResponse({"session": session})

    # -- looking

    async def documents_list(self, request: Request) -> Response:
        about = await run_in_threadpool(lambda: [self._about(document) for document in self.documents])
        return JSONResponse({"documents": about, "command": self.command, "version": __version__})

    def _about(self, document: Document) -> dict[str, Any]:
        info = document.manifest["info"]
        others = [other for other in self.documents if other is not document]
        return {
            "id": str(list(self.documents).index(document)),
            "name": document.path.name,
            "samples": len(document),
            "classes": document.classes,
            "dataset": document.manifest["dataset"]["config"]["name"],
            "network": info.get("network", {}).get("network"),
            "revision": document.revision,
            "settings": document.settings.model_dump(),
            "considered": int(document.points.considered.sum()),
            "min_samples_max": document.points.most_min_samples,
            "columns": document.columns(),
            "images": None if document.atlas is None else asdict(document.atlas.layout),
            "files": copies.paths_of(document.dataset) is not None,
            "knee": info.get("k_distance_knee"),
            "notes": [*document.notes, *info.get("notes", [])],
            "overlap": compare.overlap(document.mask(), others[0].mask()) if others else None,
        }

    async def column(self, request: Request) -> Response:
        document, name = self._document(request), request.path_params["name"]
        min_samples = _number(request, "min_samples", None)
        values = await run_in_threadpool(document.column, name, min_samples)
        return Response(values.tobytes(), media_type="application/octet-stream")

    async def clusters(self, request: Request) -> Response:
        document, body = self._document(request), await _body(request, _Clusters)
        values = await run_in_threadpool(document.points.clusters, body.min_samples, body.eps)
        return Response(values.astype("<i4").tobytes(), media_type="application/octet-stream")

    async def neighbours(self, request: Request) -> Response:
        document, sample = self._document(request), request.path_params["sample"]
        count = _number(request, "count", 8)
        if not 1 <= count <= _MOST_NEIGHBOURS:
            raise Refused(f"count {count} is not in 1 to {_MOST_NEIGHBOURS}: ask for fewer neighbours")
        return JSONResponse(await run_in_threadpool(document.points.neighbours, sample, count))

    async def atlas(self, request: Request) -> Response:
        document, page = self._document(request), request.path_params["page"]
        return await self._png(request, document, f"page-{page}", lambda: document.pictured().page(page))

    async def image(self, request: Request) -> Response:
        document, sample = self._document(request), request.path_params["sample"]
        document.points.check_sample(sample)
        return await self._png(request, document, f"image-{sample}", lambda: document.pictured().full(sample))

    async def _png(self, request: Request, document: Document, name: str, make: Callable[[], bytes]) -> Response:
        """By dataset and sample, never by filter: a browser may keep it as long as the tag is the same."""
        tag = f'"{document.saved.dataset_hash[:32]}-{name}"'
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        document.pictured()
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(await run_in_threadpool(make), media_type="image/png", headers=headers)

    async def accuracy(self, request: Request) -> Response:
        document = self._document(request)
        return JSONResponse({"series": await run_in_threadpool(accuracy.series, document, self.runs_dir)})

    # -- deciding

    async def overrides(self, request: Request) -> Response:
        document = self._document(request)
        if request.method == "GET":
            return JSONResponse(await run_in_threadpool(document.log_of_overrides))
        body = await _body(request, _Override)
        entry, revision = await run_in_threadpool(
            document.override, body.action, body.reason, {"samples": body.samples, "bits": body.bits}
        )
        self.changes.tell()
        return JSONResponse({"revision": revision, "entry": entry.brief()})

    async def undo(self, request: Request) -> Response:
        return await self._changed(self._document(request).undo)

    async def redo(self, request: Request) -> Response:
        return await self._changed(self._document(request).redo)

    async def settings(self, request: Request) -> Response:
        document, settings = self._document(request), await _body(request, Settings)
        return await self._changed(lambda: document.set_settings(settings))

    async def _changed(self, change: Callable[[], int]) -> Response:
        revision = await run_in_threadpool(change)
        self.changes.tell()
        return JSONResponse({"revision": revision})

    async def wait_for_changes(self, request: Request) -> Response:
        document, since = self._document(request), _number(request, "since", 0)
        await self.changes.wait(lambda: document.revision > since, _SECONDS_OF_A_LONG_POLL)
        return JSONResponse({"revision": document.revision})

    async def wait_for_any_change(self, request: Request) -> Response:
        """One poll for all documents: a browser has six connections to a server, for all tabs together."""
        texts = request.query_params.get("since", "").split(",")
        if len(texts) != len(self.documents) or not all(
            text.isdecimal() and len(text) <= _MOST_DIGITS for text in texts
        ):
            raise Refused(f"since={','.join(texts)!r} has to be a revision for each of {len(self.documents)} documents")
        since = [int(text) for text in texts]
        await self.changes.wait(lambda: any(map(gt, self._revisions(), since)), _SECONDS_OF_A_LONG_POLL)
        return JSONResponse({"revisions": self._revisions()})

    def _revisions(self) -> list[int]:
        return [document.revision for document in self.documents]

    # -- taking away

    async def export(self, request: Request) -> Response:
        document, body = self._document(request), await _body(request, _Export)
        files = await run_in_threadpool(exports.export, document, body.kind)
        return JSONResponse({"files": files, "folder": str(document.export_folder)})

    async def exported(self, request: Request) -> Response:
        document = self._document(request)
        path = document.exported.get(request.path_params["name"])
        if path is None or not path.is_file():
            raise Refused("there is no export of that name from this session: export it first", 404)
        return FileResponse(path, filename=path.name)

    def _document(self, request: Request) -> Document:
        number = request.path_params["d"]
        if number >= len(self.documents):
            raise Refused(f"there is no document {number}: there are {len(self.documents)}", 404)
        return self.documents[number]


def build(viewer: Viewer, host: str, *, framed: bool = False) -> Any:
    """The ASGI app, behind its guard."""
    routes = [
        Route("/api/session", viewer.session, methods=["POST"]),
        Route("/api/documents", viewer.documents_list),
        Route("/api/changes", viewer.wait_for_any_change),
        Route("/api/{d:int}/columns/{name}", viewer.column),
        Route("/api/{d:int}/clusters", viewer.clusters, methods=["POST"]),
        Route("/api/{d:int}/neighbours/{sample:int}", viewer.neighbours),
        Route("/api/{d:int}/atlas/{page:int}", viewer.atlas),
        Route("/api/{d:int}/image/{sample:int}", viewer.image),
        Route("/api/{d:int}/accuracy", viewer.accuracy),
        Route("/api/{d:int}/overrides", viewer.overrides, methods=["GET", "POST"]),
        Route("/api/{d:int}/undo", viewer.undo, methods=["POST"]),
        Route("/api/{d:int}/redo", viewer.redo, methods=["POST"]),
        Route("/api/{d:int}/settings", viewer.settings, methods=["POST"]),
        Route("/api/{d:int}/changes", viewer.wait_for_changes),
        Route("/api/{d:int}/export", viewer.export, methods=["POST"]),
        Route("/api/{d:int}/exports/{name}", viewer.exported),
        Route("/", _static_file(STATIC / "index.html")),
        # one route per file that exists, so that no path can lead out of the folder
        *(
            Route(f"/{path.relative_to(STATIC).as_posix()}", _static_file(path))
            for path in sorted(STATIC.rglob("*"))
            if path.suffix in _MEDIA_TYPES
        ),
    ]
    handlers: dict[Any, Any] = {
        Problem: _refuse,
        HTTPException: _no_such_thing,
        ClientDisconnect: _gone,
        Exception: _fault,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), viewer.keys, host, framed=framed)


def _static_file(path: Path) -> Callable[[Request], Response]:
    """An endpoint that returns one file of the page."""

    def respond(request: Request) -> Response:
        headers = {"cache-control": "no-cache"}
        return Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix], headers=headers)

    return respond


async def _refuse(request: Request, problem: Problem) -> Response:
    return _sentence(str(problem), problem.status if isinstance(problem, Refused) else 422)


async def _no_such_thing(request: Request, error: HTTPException) -> Response:
    return _sentence(
        f"{request.method} {request.url.path} is nothing that this server knows: reload the page", error.status_code
    )


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=499)


async def _fault(request: Request, error: Exception) -> Response:
    """Its traceback goes to the terminal."""
    return _sentence(
        f"the server met a fault of its own ({type(error).__name__}; its terminal says more): everything up to your "
        "last change is saved, try again",
        500,
    )


def _sentence(problem: str, status: int) -> Response:
    return JSONResponse({"problem": problem}, status)


async def _body(request: Request, kind: type[Body]) -> Body:
    try:
        return kind.model_validate(json.loads(await request.body()))
    except ValidationError as error:
        raise Refused(parts.explain(error, "the request", kind)[:_LONGEST_SENTENCE]) from error
    except (ValueError, RecursionError) as error:
        raise Refused(f"the request is not JSON ({error}): reload the page", 400) from error


def _number(request: Request, name: str, default: Any) -> Any:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.lstrip("-").isdecimal() or len(text) > _MOST_DIGITS:
        raise Refused(f"{name}={text!r} is no whole number: reload the page")
    return int(text)
