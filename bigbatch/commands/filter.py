"""`bigbatch filter`, `bigbatch filter compare`, `rebuild` and `audit`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from bigbatch.commands._options import DataDir, Quiet, Ranks, RunsDir, Settings
from bigbatch.errors import DONE, Problem
from bigbatch.output.formatting import print_table

if TYPE_CHECKING:
    from bigbatch.curation import ComparisonRow
    from bigbatch.filters.pipeline.results import Manifest
    from bigbatch.run import Run

command = App(
    name="filter", help="Drop the training samples that are outliers of their class in a trained network's features."
)

_TABLE_COLUMNS = 140  # characters of wide tables, also where the output is not a terminal

FilterSettings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        help="an option of the filter, like drop=0.2, or of the dataset, like dataset.crop=28",
    ),
]


@command.default
def filter_dataset(
    dataset: str,
    *,
    network: Annotated[
        str | None, Parameter(help="a run's folder, a recipe (trained first), weights, mypkg.mod:Class, or features")
    ] = None,
    out: Annotated[
        Path | None, Parameter(help="the file to write: kept.npz, with its manifest beside it; with --tune, tuned.json")
    ] = None,
    by: Annotated[str, Parameter(help="another filter than 'network': see 'bigbatch list filters'")] = "network",
    settings: FilterSettings = None,
    tuned: Annotated[Path | None, Parameter(help="a tuned.json of --tune: its network and its best options")] = None,
    rounds: Annotated[int, Parameter(help="filter, train on what is left, filter again ...")] = 1,
    ranks: Ranks = 1,
    tune: Annotated[
        bool, Parameter(negative="", help="search the filter's options by the accuracy of --recipe at --global-batch")
    ] = False,
    recipe: Annotated[str | None, Parameter(help="with --tune: the training that evaluates the options")] = None,
    global_batch: Annotated[int | None, Parameter(help="with --tune: the global batch of that training")] = None,
    trials: Annotated[int, Parameter(help="with --tune: number of trials")] = 20,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Filter a dataset: features of a network, PCA, t-SNE, DBSCAN in each class; noise is dropped.

    `bigbatch train RECIPE --set filter=kept.npz` trains on the result.
    """
    if ranks < 1:
        raise Problem(f"--ranks must be at least 1, got {ranks}: use 1 or more")
    from bigbatch import curation

    folders: dict[str, Any] = {"runs_dir": runs_dir, "data_dir": data_dir, "quiet": quiet}
    if tune:
        if network is None or recipe is None or global_batch is None:
            raise Problem("--tune needs --network, --recipe and --global-batch: give all three")
        if by != "network" or rounds != 1 or ranks != 1:
            raise Problem(
                "--tune searches one round of the filter 'network' in one process: leave out --by, --rounds and --ranks"
            )
        out = out or Path("tuned.json")
        request = curation.TuningRequest(dataset, network, recipe, global_batch, out, settings or [], trials, **folders)
        print(f"{out}: {curation.tune_filter(request)['best']}")
        return DONE
    if recipe is not None or global_batch is not None:
        raise Problem("--recipe and --global-batch are for --tune: add it, or leave them out")
    out = out or Path("kept.npz")
    from bigbatch.engines import env_rank, env_world_size
    from bigbatch.launch.processes import run_command_on_ranks

    if ranks > 1 and env_world_size() == 1:
        curation.check_output_file(out, "kept.npz")
        arguments = [
            *("filter", dataset, "--out", str(out), "--by", by, "--rounds", str(rounds), "--runs-dir", str(runs_dir)),
            *(("--network", network) if network else ()),
            *(("--tuned", str(tuned)) if tuned else ()),
            *(("--data-dir", str(data_dir)) if data_dir else ()),
            *(f"--set={setting}" for setting in settings or []),
            *(("--quiet",) if quiet else ()),
        ]
        return run_command_on_ranks(arguments, ranks)
    manifest = curation.filter_dataset(
        curation.FilterRequest(dataset, out, network, by, settings or [], rounds, tuned, **folders)
    )
    if not quiet and env_rank() == 0:
        _print_manifest(manifest)
    return DONE


@command.command(name="compare")
def compare_filters(
    results: Annotated[list[Path], Parameter(help="two kept.npz or more")],
    /,
    *,
    recipe: Annotated[str | None, Parameter(help="train this on each of them")] = None,
    settings: Settings = None,
    seeds: Annotated[int, Parameter(help="trainings per result")] = 3,
    global_batch: Annotated[
        list[int] | None, Parameter(negative="", consume_multiple=True, help="several batches, like 512 8192")
    ] = None,
    budget: Annotated[
        list[Literal["epochs", "steps"]] | None,
        Parameter(negative="", consume_multiple=True, help="epochs of what is kept, or steps as with all samples"),
    ] = None,
    random_draws: Annotated[int, Parameter(help="random controls of each result, of the same size per class")] = 0,
    equal_sizes: Annotated[
        bool, Parameter(negative="", help="of each class, drop only as many as the result that drops least")
    ] = False,
    out: Annotated[Path | None, Parameter(help="a folder for tables as CSV and a page")] = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Print sizes, overlaps and classes of filters' results, and the accuracy of a recipe on each."""
    from bigbatch import curation

    request = curation.ComparisonRequest(
        results,
        recipe,
        settings or [],
        seeds,
        global_batch or [],
        budget or ["epochs"],
        random_draws,
        equal_sizes,
        out,
        runs_dir=runs_dir,
        data_dir=data_dir,
        quiet=quiet,
    )
    _print_comparison(curation.compare_results(request), request.build_run())
    if out is not None:
        print(out / "index.html")
    return DONE


@command.command(name="rebuild")
def rebuild_result(
    result: Annotated[Path, Parameter(help="a kept.npz or its .json")], /, *, data_dir: DataDir = None
) -> int:
    """Recompute a result from its manifest without the cache: bit for bit the same, or a sentence on what changed."""
    from bigbatch import filters

    kept = filters.rebuild(result, data_dir)
    print(f"{result}: rebuilt bit for bit, {int(kept.mask.sum()):,} of {len(kept.mask):,} samples kept")
    return DONE


@command.command(name="audit")
def audit_filters(
    dataset: str,
    /,
    *,
    out: Annotated[Path, Parameter(help="a folder for the table, the charts and a page")] = Path("audit"),
    network: Annotated[
        str | None, Parameter(help="an extractor that has not seen the noise; two others are trained on it")
    ] = None,
    plant: Annotated[
        list[str] | None,
        Parameter(negative="", consume_multiple=True, help="KIND=FRACTION, like flip=0.02; see datasets/planted.py"),
    ] = None,
    plants: Annotated[int, Parameter(help="how often noise is planted, each time in other samples")] = 3,
    samples: Annotated[int | None, Parameter(help="that many random samples of the dataset")] = None,
    filters: Annotated[
        list[str] | None, Parameter(negative="", consume_multiple=True, help="default: all that rank samples")
    ] = None,
    drops: Annotated[
        list[float] | None, Parameter(negative="", consume_multiple=True, help="fractions that are dropped")
    ] = None,
    settings: FilterSettings = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> int:
    """Plant known noise, and print how much of it each filter finds at equal sizes, and what that costs."""
    from bigbatch import curation
    from bigbatch.settings import parse

    fractions = {} if drops is None else {"drops": drops}
    request = curation.AuditRequest(
        dataset,
        out,
        network,
        settings or [],
        dict(parse(assignment, example="flip=0.02") for assignment in plant or []),
        plants,
        samples,
        filters or [],
        **fractions,
        runs_dir=runs_dir,
        data_dir=data_dir,
        quiet=quiet,
    )
    rows = curation.audit_filters(request)
    for drop in request.drops:
        columns, lines = curation.summarise_audit(rows, drop)
        title = f"{100 * drop:g} % of each class dropped; recall of each kind in %"
        print_table(columns, lines, left=("extractor", "filter"), title=title, min_width=_TABLE_COLUMNS)
    print(out / "index.html")
    return DONE


def _print_manifest(manifest: Manifest) -> None:
    """Kept and dropped samples per class, with eps where the filter has one, and in all: the paper's Table I."""
    info, counts, samples = manifest.info, manifest.counts, manifest.dataset.samples
    eps, knees = info.get("eps", {}), info.get("k_distance_knee", {})
    columns = ["class", "kept", "dropped", "dropped %", *(("eps", "knee (a hint)") if eps else ())]
    rows = []
    for name, row in [*counts.by_class.items(), ("all", counts)]:
        total = row.kept + row.dropped
        percent = f"{100 * row.dropped / total if total else 0:.2f}"
        radii = [f"{each[name]:.3f}" if name in each else "" for each in (eps, knees)] if eps else []
        rows.append([name, f"{row.kept:,}", f"{row.dropped:,}", percent, *radii])
    title = f"{manifest.dataset.config['name']}: {manifest.filter['name']} filter"
    print_table(columns, rows, left=("class",), title=title)
    source = info.get("network", {}).get("network") or manifest.filter["name"]
    percent_kept = 100 * counts.kept / samples
    print(f"{source}: {percent_kept:.2f} % or {counts.kept:,} samples kept ({100 - percent_kept:.2f} % dropped)")
    for note in info.get("notes", []):
        print(f"note: {note}")


def _print_comparison(rows: Sequence[ComparisonRow], run: Run | None) -> None:
    from bigbatch.curation import summarise_trainings

    names = [row.name for row in rows]
    sizes = [[row.name, f"{row.counts.kept:,}", f"{row.counts.dropped:,}"] for row in rows]
    print_table(["filter", "kept", "dropped"], sizes, left=("filter",))
    if run:
        budget = f"{run.epochs} epochs" if run.epochs else f"{run.steps} steps"
        title = f"trained: {run.model.name}, {budget}; 95 % intervals over seeds, differences of the same seeds"
        columns, lines = summarise_trainings(rows)
        print_table(columns, lines, left=("filter",), title=title, min_width=_TABLE_COLUMNS)
    overlaps = [[row.name, *(f"{row.jaccard_dropped[name]:.3f}" for name in names)] for row in rows]
    corner = "dropped by both / by either"
    print_table([corner, *names], overlaps, left=(corner,))
    by_class = [[name, *(f"{row.counts.by_class[name].dropped:,}" for row in rows)] for name in rows[0].counts.by_class]
    print_table(["dropped of class", *names], by_class, left=("dropped of class",))
