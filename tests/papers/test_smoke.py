"""Every table and figure at the smoke scale: the shape that can be seen there, and that the claims can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigbatch.papers.catalog import find_figure, list_figures, list_papers
from bigbatch.papers.records import Results
from bigbatch.papers.reproduction import Place, read_results, reproduce
from bigbatch.sweeps import WorkerOptions

# what must hold on digits and synthetic data, by how the claims of a figure begin
HOLDS = {
    "lars.fig1": ["the large batch has the higher training loss"],
    "lars.fig2": ["at 8K LARS is more accurate than momentum"],
    "lars.fig3": ["16K: learning rates from 13 to 22 are within"],
    "lars.fig4": ["the curves of 256 and 8K end within five points", "large batches, with their warm-up, start behind"],
    "lars.table1": ["without BatchNorm the highest", "AlexNet at 8K is less", "AlexNet-BN at 8K is less"],
    "lars.table2": ["the norms of all eight weights", "the first convolution has the smallest ratio"],
    "lars.table3": ["AlexNet loses at 32K", "AlexNet-BN loses at 32K", "BatchNorm loses less at 32K"],
    "lars.table4": ["up to 8K ResNet-50 loses at most", "32K is less accurate than 256"],
    "lars.table5": ["AlexNet: twice the epochs", "AlexNet-BN: twice the epochs"],
    "lars.table6": ["with more epochs and longer warm-ups 16K is within", "in the baseline's epochs 16K is less"],
    "legw.fig1": ["at the largest batch LEGW is more accurate", "from the smallest to the largest batch LEGW"],
    "legw.fig2": ["k times the batch"],
    "legw.fig3": ["the peak of L(x, g) comes later", "the peak is early"],
    "legw.fig4": ["all of them lose accuracy"],
    "legw.fig5": ["images: at the largest", "images: LEGW loses less", "text: at the largest"],
    "legw.fig6": ["images: LEGW is better"],
    "legw.fig7": ["images: LEGW is better"],
    "legw.mnist": ["at 8192 LEGW is more accurate than: same lr", "at 8192 LEGW is more accurate than: linear scaling"],
    "legw.ptb": ["at 640 LEGW has a lower perplexity than: same lr", "at 640 LEGW has a lower perplexity than: linear"],
    "legw.solvers": ["every solver is worse at the largest batch"],
    "legw.table1": ["from the smallest to the largest batch the accuracy stays"],
}
QUICK = ("lars.table2", "legw.fig2")  # in the default suite, one per paper
FIGURES = [name for paper in list_papers() for name in list_figures(paper)]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The figures of a paper share runs."""
    return tmp_path_factory.mktemp("reproduced")


def test_every_figure_has_a_shape_to_check():
    assert set(HOLDS) == set(FIGURES)
    assert {name.partition(".")[0] for name in QUICK} == set(list_papers())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.papers) for name in FIGURES]
)
def test_the_shape_at_the_smoke_scale(name, out):
    (found,) = reproduce([name], "smoke", out, WorkerOptions(jobs=2))
    assert found.tasks_done == found.tasks
    assert _broken(name, {claim["text"]: claim["held"] for claim in found.claims}) == []
    folder = out / "smoke" / "figures" / name
    assert (folder / "README.md").stat().st_size > 300
    assert all((folder / f"{chart}.csv").stat().st_size > 30 for chart in found.charts)
    if found.tasks:
        results = read_results(name, "smoke", Place(out / "smoke", WorkerOptions()))
        verdicts = [_claims(name, corrupt(results)) for corrupt in (_reverse, _flatten, _diverge, _invert)]
        assert any(_broken(name, claims) for claims in verdicts), "no result could contradict these claims"


def _broken(name, claims):
    """The expected claims that do not hold."""
    found = {start: [held for text, held in claims.items() if text.startswith(start)] for start in HOLDS[name]}
    assert all(found.values()), f"claims that {name} does not make: {[start for start in found if not found[start]]}"
    return [start for start, held in found.items() if not all(held)]


def _claims(name, results):
    return {claim.text: claim.held for claim in find_figure(name).draw(results).claims}


def _reverse(results: Results) -> Results:
    """The same records, each under the wrong case."""
    cases = list(results.records)
    return replace(results, records=dict(zip(cases, reversed(results.records.values()), strict=True)))


def _flatten(results: Results) -> Results:
    """The same record everywhere."""
    first = next(iter(results.records.values()))
    return replace(results, records=dict.fromkeys(results.records, first))


def _invert(results: Results) -> Results:
    """One over every number: what fell rises."""

    def invert(value):
        if isinstance(value, dict):
            return {key: invert(item) for key, item in value.items()}
        if isinstance(value, list):
            return [invert(item) for item in value]
        return 1 / value if isinstance(value, float) and value else value

    records = {
        case: [replace(one, result=invert(one.result), rows=invert(one.rows)) for one in found]
        for case, found in results.records.items()
    }
    return replace(results, records=records)


def _diverge(results: Results) -> Results:
    """Nothing trains."""
    return replace(
        results,
        records={
            case: [replace(one, result=one.result | {"diverged_at_step": 1}) for one in found]
            for case, found in results.records.items()
        },
    )
