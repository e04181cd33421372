"""Every machine of a cluster is checked at the start and reported by its name: two of Ray's nodes on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rlfactory_verl.run_payload import Payload
from runs import TINY_TASK
from said import Said

from rlfactory_core.errors import UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner import read, resolve

ray = pytest.importorskip("ray", reason="the verl engine")
pytest.importorskip("verl", reason="the verl engine")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(num_cpus=1, include_dashboard=False)
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def payload(folder: Path, **verl: Any) -> Payload:
    registry = Registry()
    config = resolve(
        registry, read(None, [{"plugin": TINY_TASK, "model": "a/model", "engine": "verl", "verl": verl}])
    ).config
    registry.load(TINY_TASK)
    return Payload.make(config, registry.fingerprints(), folder)


def check(sent: Payload) -> list[str]:
    from rlfactory_verl.nodes import check_nodes

    said = Said()
    check_nodes(sent, said)
    return said.lines


def test_machines_without_a_problem_are_named(cluster: Any, tmp_path: Path) -> None:
    assert len([line for line in check(payload(tmp_path, nodes=2)) if line.endswith(": ready")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_different_plugin_is_reported_with_machine_and_file(cluster: Any, tmp_path: Path) -> None:
    sent = payload(tmp_path)
    changed = [replace(item, files=dict.fromkeys(item.files, "0" * 64)) for item in sent.fingerprints]
    with pytest.raises(UsageError) as refused:
        check(replace(sent, fingerprints=tuple(changed)))
    text = str(refused.value)
    assert text.startswith("The run cannot start on every machine.")
    assert text.count("differs") == 2


def test_a_service_that_the_task_cannot_reach_is_reported(cluster: Any, tmp_path: Path) -> None:
    source = (
        Path(TINY_TASK)
        .read_text()
        .replace(
            "    async def open(self) -> None:\n",
            '    async def open(self) -> None:\n        raise BackendError("no retriever")\n',
        )
    )
    plugin = tmp_path / "reach.py"
    plugin.write_text(source.replace("import ToolUnavailableError", "import BackendError, ToolUnavailableError"))
    registry = Registry()
    config = resolve(registry, read(None, [{"plugin": str(plugin), "model": "a/model"}])).config
    with pytest.raises(UsageError, match="no retriever"):
        check(Payload.make(config, registry.fingerprints(), tmp_path))


def test_too_few_machines(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"verl\.nodes=3, but the Ray cluster has 2"):
        check(payload(tmp_path, nodes=3))
