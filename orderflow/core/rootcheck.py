"""Our root packages have common names; make sure that each resolves inside this project."""

from importlib.util import find_spec
from pathlib import Path

ROOT_PACKAGES = ("orderflow", "producers", "consumers", "schemas", "retry")

_PROJECT_ROOT = Path(__file__).resolve().parents[2]


def foreign_root_packages(root: Path = _PROJECT_ROOT) -> dict[str, str]:
    """Return the root packages that resolve outside `root`, with the place where each was found."""
    foreign: dict[str, str] = {}
    for name in ROOT_PACKAGES:
        spec = find_spec(name)
        places = list(spec.submodule_search_locations or []) if spec else []
        if root / name not in {Path(place).resolve() for place in places[:1]}:
            foreign[name] = places[0] if places else (spec.origin if spec and spec.origin else "nowhere")
    return foreign


def assert_root_packages_are_ours() -> None:
    """Stop with a sentence when another distribution shadows one of our root packages.

    Raises `ImportError`, naming the package and the place it came from.
    """
    foreign = foreign_root_packages()
    if foreign:
        found = ", ".join(f"{name} ({place})" for name, place in foreign.items())
        message = (
            f"these packages are not orderflow's own: {found}. Another distribution with the same "
            f"name is installed: `pip uninstall retry` (or the package named here) mends it."
        )
        raise ImportError(message)
