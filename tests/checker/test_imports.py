"""The checker is a witness of its own: it imports nothing of what it judges."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PRODUCT = {"consumers", "retry", "producers", "schemas", "orderflow"}
CHECKER = [path for path in sorted(HERE.glob("*.py")) if not path.name.startswith(("test_", "conftest"))]


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


@pytest.mark.parametrize("path", CHECKER, ids=lambda path: path.name)
def test_the_checker_reads_with_none_of_the_products_code(path: Path) -> None:
    for module in imported(path.read_text(encoding="utf-8")):
        root, _, rest = module.partition(".")
        assert root not in PRODUCT, f"{path.name} imports {module}"
        # What it shares with other tests might import the product for it.
        assert root != "tests" or f"{rest}.".startswith("checker."), f"{path.name} imports {module}"
        assert root not in ("importlib", "runpy"), f"{path.name} may import anything by {module}"


def test_an_import_of_the_product_would_be_seen() -> None:
    assert imported("import os\nfrom retry.policy import verdict\n\ndef f():\n    import consumers.runtime\n") == {
        "os",
        "retry.policy",
        "consumers.runtime",
    }
