"""Reproduce figures: do the tasks that have no record yet, draw, and write what was found with its verdict.

OUT/SCALE/records   one JSON file per finished task: small, kept, and all that a figure is drawn from
OUT/SCALE/runs      folders of trainings; work/ has their logs and claims, kept/ the results of filters
OUT/SCALE/figures   per figure: figure.json, a page in Markdown, charts as PNG, SVG and CSV
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bigbatch import datasets, engines, filters, parts
from bigbatch.artifacts import atomic, provenance
from bigbatch.artifacts.folder import Folder
from bigbatch.artifacts.metrics import StepMetrics, dump_json
from bigbatch.datasets.reading.download import data_folders
from bigbatch.errors import Problem, Stopped
from bigbatch.output.formatting import format_duration
from bigbatch.papers.catalog import find_figure, list_figures, list_papers, summary
from bigbatch.papers.drawing import Drawing, Table
from bigbatch.papers.records import SCALES, Record, Results, Scale
from bigbatch.papers.tasks import FilteredTraining, Filtering, Probing, Task, list_needs
from bigbatch.probing import RunAtRest
from bigbatch.run import Run
from bigbatch.sweeps import SweepPoint, WorkerOptions, analyze
from bigbatch.sweeps.queue import PointQueue
from bigbatch.sweeps.results import read_unfinished
from bigbatch.sweeps.worker import Worker

_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"
_STEP_KEYS = StepMetrics.__dataclass_fields__.keys()


@dataclass(frozen=True)
class Reproduction:
    """A figure as it was reproduced: figure.json."""

    figure: str
    title: str
    scale: Scale
    setting: str
    verdict: str
    claims: list[dict[str, Any]]  # text and held
    tables: list[dict[str, Any]]  # title, columns and rows
    charts: list[str]
    seeds: int
    tasks: int
    tasks_done: int
    hours: float
    command: str
    commits: list[str]
    hardware: list[str]

    @classmethod
    def read(cls, path: Path) -> Reproduction:
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise Problem(f"{path} is not a readable figure ({error}): 'bigbatch reproduce' writes it again") from error


def reproduce(
    figures: Sequence[str], scale: Scale, out: Path, options: WorkerOptions | None = None, *, run: bool = True
) -> list[Reproduction]:
    """Do what is missing for some figures (`lars.table1`) and draw them; with run=False draw what there is."""
    place = Place(out / scale, options or WorkerOptions())
    if run:
        place.complete(task for name in figures for case in find_figure(name).runs(scale).values() for task in case)
    return [_draw(name, scale, place) for name in figures]


# -- tasks and their records


class Place:
    """The folder of one scale, which workers may share."""

    def __init__(self, folder: Path, options: WorkerOptions) -> None:
        self.folder = folder
        self.options = options

    def record(self, task: Task) -> Record | None:
        return Record.read(self.folder / "records" / f"{task.hash}.json")

    def kept_file(self, task: Filtering) -> Path:
        return self.folder / "kept" / f"{task.hash}.npz"

    def list_left(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks that are not done, each after those whose files it reads, which may be done again."""
        left: dict[str, Task] = {}

        def visit(task: Task, needs_files: bool) -> None:
            if task.hash not in left and (self.record(task) is None or (needs_files and not self._has_files(task))):
                for needed in list_needs(task):
                    visit(needed, True)
                left[task.hash] = task

        for task in tasks:
            visit(task, False)
        return list(left.values())

    def _has_files(self, task: Task) -> bool:
        if isinstance(task, Filtering):
            return self.kept_file(task).is_file()
        return not isinstance(task, Run) or any(self._run_folder(task).checkpoints.glob("step-*"))

    def _run_folder(self, run: Run) -> Folder:
        return Folder(self.folder / "runs" / run.folder_name)

    def complete(self, tasks: Iterable[Task]) -> None:
        """Do all tasks that are left: trainings side by side, everything else in this process."""
        left = self.list_left(tasks)
        while left:
            waiting = {task.hash for task in left}
            ready = [task for task in left if not any(needed.hash in waiting for needed in list_needs(task))]
            self._train([task for task in ready if isinstance(task, Run | FilteredTraining)])
            for task in ready:
                started = time.perf_counter()
                if isinstance(task, Probing):
                    self._write(task, self._probe(task), started)
                elif isinstance(task, Filtering):
                    self._write(task, self._filter(task), started)
            left = [task for task in left if task not in ready]

    def _write(self, task: Probing | Filtering, result: dict[str, Any], started: float) -> None:
        seconds = time.perf_counter() - started
        record = Record(type(task).__name__, task.run.to_dict(), result, [], seconds, _about(provenance.collect()))  # type: ignore[arg-type]
        record.write(self.folder / "records" / f"{task.hash}.json")

    def _probe(self, task: Probing) -> dict[str, Any]:
        engine = engines.start(task.run.engine)
        try:
            at_rest = RunAtRest(task.run, engine, data_dir=self.options.data_dir)
            try:
                return at_rest.measure(parts.configure("probes", task.probe))
            finally:
                at_rest.close()
        finally:
            engine.stop()

    def _filter(self, task: Filtering) -> dict[str, Any]:
        dataset = datasets.load(task.run.dataset, self.options.data_dir)
        source: dict[str, Any] = {"network": str(self._run_folder(task.run).path)}
        if task.weights is not None:
            source = {"network": str(self._find_weights(task.weights)), "model": task.run.model.model_dump(mode="json")}
        config = parts.configure("filters", {"name": "network", **source, **task.options})
        result = filters.create_result(filters.keep(dataset, config), dataset, task.run.dataset, config)
        filters.save(self.kept_file(task), result)
        return asdict(result.require_manifest().counts)

    def _find_weights(self, name: str) -> Path:
        folders = data_folders(self.options.data_dir)
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if found is None:
            raise Problem(f"there are no weights {name} in {folders[0]}: put the published file there")
        return found

    def _train(self, tasks: Sequence[Run | FilteredTraining]) -> None:
        if not tasks:
            return
        runs = {task.hash: self._resolve(task) for task in tasks}
        points = list({run.hash: as_point(run) for run in runs.values()}.values())
        try:
            Worker(PointQueue(points, self.folder), self.folder, self.options, lambda: analyze([])).run_all()
        except Stopped:
            raise Stopped("stopped; the same command resumes it") from None
        failures = [read_unfinished(point, self.folder, claimed=False) for point in points]
        for task in tasks:
            folder = self._run_folder(runs[task.hash])
            if folder.status in ("done", "diverged"):
                _record_training(task, folder).write(self.folder / "records" / f"{task.hash}.json")
        for failure in failures:
            if failure.problem:
                raise Problem(f"{failure.label}: {failure.problem}")

    def _resolve(self, task: Run | FilteredTraining) -> Run:
        """Return the run with its filter, which names a file."""
        if isinstance(task, Run):
            return task
        kept = str(self.kept_file(task.filtering))
        by = {"name": "random", "like": kept, "seed": task.run.seed} if task.keep == "random" else kept
        return Run(**(task.run.model_dump(mode="json") | {"filter": by}))


def as_point(run: Run) -> SweepPoint:
    """Return a run as a point of a sweep; its label is its name, batch and learning rate."""
    point = SweepPoint(run.name, {}, run.seed, run)
    return SweepPoint(f"{run.name}, batch {point.global_batch}, lr {point.lr:g}", {}, run.seed, run)


def _record_training(task: Run | FilteredTraining, folder: Folder) -> Record:
    stored = json.loads((folder.path / "run.json").read_text(encoding="utf-8"))
    kept = [row for row in folder.metrics() if row.keys() - _STEP_KEYS]
    result = folder.summary().to_dict()
    run = stored["run"]
    if isinstance(task, FilteredTraining):  # a path of this machine means nothing elsewhere
        run = run | {"filter": None}
    return Record(type(task).__name__, run, result, kept, result["seconds"], _about(stored))  # type: ignore[arg-type]


def _about(collected: Mapping[str, Any]) -> dict[str, Any]:
    changed = " with uncommitted changes" if collected["dirty_diff"] else ""
    commit = collected["commit"]
    return {
        "commit": f"{commit[:12]}{changed}" if commit else "none",
        "packages": collected["packages"],
        "hardware": collected["hardware"],
    }


# -- drawing


def read_results(name: str, scale: Scale, place: Place) -> Results:
    """Return the records of a figure's tasks that are done."""
    cases = find_figure(name).runs(scale)
    found = {case: [record for task in tasks if (record := place.record(task))] for case, tasks in cases.items()}
    files = {case: place.kept_file(task) for case, (task, *_) in cases.items() if isinstance(task, Filtering)}
    return Results(scale, {case: records for case, records in found.items() if records}, files)


def _draw(name: str, scale: Scale, place: Place) -> Reproduction:
    results = read_results(name, scale, place)
    drawing = find_figure(name).draw(results)
    folder = place.folder / "figures" / name
    for stem, chart in drawing.charts.items():
        chart.save(folder / stem)
    reproduction = _summarize(name, scale, results, drawing, place)
    atomic.write_text(folder / "figure.json", dump_json(asdict(reproduction), indent=1) + "\n")
    atomic.write_text(folder / "README.md", describe(reproduction))
    return reproduction


def _summarize(name: str, scale: Scale, results: Results, drawing: Drawing, place: Place) -> Reproduction:
    tasks = {task.hash: task for case in find_figure(name).runs(scale).values() for task in case}
    records = [record for task in tasks.values() if (record := place.record(task))]
    machines = {f"{one['cpu']}, {one['threads']} threads" for one in (r.about["hardware"] for r in records)}
    return Reproduction(
        figure=name,
        title=summary(name),
        scale=scale,
        setting=results.setting,
        verdict=drawing.verdict if len(records) == len(tasks) or not records else f"{drawing.verdict} so far",
        claims=[asdict(claim) for claim in drawing.claims],
        tables=[asdict(table) for table in drawing.tables],
        charts=list(drawing.charts),
        seeds=results.seeds,
        tasks=len(tasks),
        tasks_done=len(records),
        hours=sum(record.seconds for record in records) / 3600,
        command=f"bigbatch reproduce {name} --scale {scale}",
        commits=sorted({record.about["commit"] for record in records}),
        hardware=sorted(machines),
    )


def describe(found: Reproduction) -> str:
    """Return the page of a figure in Markdown."""
    held = {True: "held", False: "did not hold", None: "not decided"}
    lines = [f"# {found.figure}: {found.title}", "", f"Verdict at the scale `{found.scale}`: **{found.verdict}**.", ""]
    lines += [f"- {claim['text']}: {held[claim['held']]}" for claim in found.claims]
    for table in found.tables:
        lines += ["", *([f"**{table['title']}**", ""] if table["title"] else []), *markdown_table(Table(**table))]
    lines += [line for chart in found.charts for line in ("", f"![{chart}]({chart}.png)")]
    lines += [
        "",
        f"{found.setting or 'Nothing is trained'}; {found.tasks_done} of {found.tasks} tasks done, seeds per setting: "
        f"{found.seeds}; {format_duration(3600 * found.hours)} of computing.",
        f"`{found.command}`; commit {', '.join(found.commits) or 'none'}; {'; '.join(found.hardware) or 'no machine'}.",
    ]
    return "\n".join(lines) + "\n"


def markdown_table(table: Table) -> list[str]:
    rows = [table.columns, *table.rows]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(table.columns), *lines[1:]]


def write_index(out: Path) -> Path:
    """Write the table of all figures into OUT/README.md, between its marks if it has them; return the file."""
    path = out / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else f"# Reproductions\n\n{_BEGIN}\n{_END}\n"
    if text.count(_BEGIN) != 1 or text.count(_END) != 1:
        raise Problem(f"{path} has no lines '{_BEGIN}' and '{_END}' for the table: add them, or choose another --out")
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    lines = markdown_table(tabulate_figures(out))
    return atomic.write_text(path, "\n".join([before + _BEGIN, "", *lines, "", _END]) + after)


def tabulate_figures(out: Path) -> Table:
    """Return every figure with its verdict at the largest scale that was run."""
    rows = []
    for name in (name for paper in list_papers() for name in list_figures(paper)):
        paths = [out / scale / "figures" / name / "figure.json" for scale in SCALES]
        done = [path for path in paths if path.is_file()]
        if not done:
            rows.append([name, summary(name), "not run beyond the smoke test", "–", "–", "–"])
            continue
        found = Reproduction.read(done[-1])
        link = f"[{name}]({done[-1].parent.relative_to(out)}/README.md)"
        rows.append([link, found.title, found.verdict, found.scale, str(found.seeds), f"{found.hours:.2f}"])
    return Table(["figure", "what it shows", "verdict", "scale", "n", "hours"], rows)
