"""A workload and the run whose steps are measured."""

from __future__ import annotations

from bigbatch.scaling.workload import EngineConfiguration, Workload


def test_a_configuration_reaches_its_engine():
    model = Workload("mlp", {}, (1, 8, 8), 10, {"ddp": {"static_graph": True}})
    run = model.run(EngineConfiguration("ddp", 2, 8, (("bucket_mb", 0.5),)))
    assert (run.engine.name, run.engine.bucket_mb, run.engine.static_graph) == ("ddp", 0.5, True)
    assert run.global_batch.global_batch == 16
