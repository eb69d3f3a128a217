"""The README's way with Docker, where an engine runs; it pulls images, so it is one of the long tests."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.docs import blocks
from tests.e2e.docs.reader import Reader, copy_project

MINUTES = 60.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers here")
    folder = tmp_path / "orderflow-docs"
    copy_project(folder)
    yield folder
    subprocess.run([docker, "compose", "down", "--volumes"], cwd=folder, check=False)


@pytest.mark.long
@pytest.mark.timeout(30 * MINUTES)
def test_the_shop_in_containers_takes_an_order(project: Path) -> None:
    (block,) = (step.parsed for step in blocks.parse("README.md") if "docker compose up" in step.parsed.source)
    with Reader(project, activated=False, step_seconds=25 * MINUTES) as reader:
        key = reader.run(block.source).split()[-1]
    answer = httpx.post(
        "http://127.0.0.1:8080/v1/orders",
        headers={"Authorization": f"Bearer {key}"},
        json={
            "customer_id": "c963cfe0-afae-4a3b-b909-6a04e7d80068",
            "currency": "GBP",
            "lines": [{"sku": "TEA-SENCHA-100", "quantity": 2, "unit_price": "10.66"}],
        },
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text
