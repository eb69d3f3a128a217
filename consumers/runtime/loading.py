"""From a name or `module:attribute` to a `ConsumerGroup`."""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Sequence

from consumers import GROUPS
from consumers.runtime.group import ConsumerGroup
from orderflow.core.errors import Misconfigured
from orderflow.core.settings import Settings

_SPEC = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def load_group(spec: str, configured: Sequence[str] = ()) -> ConsumerGroup:
    """Return the group that `spec` names: a built-in name, `module:attribute`, or the name of a `configured` one.

    Modules are also found in the working folder, after everything that is installed. Raises
    `Misconfigured` when there is no such name, module or attribute, when the module cannot be
    imported, and when the attribute is no `ConsumerGroup`.
    """
    path = GROUPS.get(spec, spec)
    if not _SPEC.fullmatch(path):
        return _named(spec, [one for one in configured if one not in GROUPS])
    module_name, attribute = path.split(":")
    module = _import(module_name)
    found = getattr(module, attribute, None)
    if not isinstance(found, ConsumerGroup):
        what = "has no such attribute" if found is None else f"has a {type(found).__name__} there, no ConsumerGroup"
        raise Misconfigured(f"group {spec!r}: module {module_name} {what}")
    return found


def load_groups(settings: Settings) -> list[ConsumerGroup]:
    """Return the groups of `ORDERFLOW_GROUPS`, in its order.

    Raises `Misconfigured` as `load_group` does, and when two entries share a name.
    """
    groups = [load_group(spec) for spec in settings.groups]
    _refuse_twins([group.name for group in groups])
    return groups


def group_names(settings: Settings) -> list[str]:
    """Return the names of the groups of `ORDERFLOW_GROUPS`; built-in ones are not imported for it.

    Raises `Misconfigured` as `load_groups` does.
    """
    names = [group_name(spec) for spec in settings.groups]
    _refuse_twins(names)
    return names


def group_name(spec: str, configured: Sequence[str] = ()) -> str:
    """Return the name of the group that `spec` names; a built-in one is not imported for it.

    Raises `Misconfigured` as `load_group` does.
    """
    return spec if spec in GROUPS else load_group(spec, configured).name


def is_listed(spec: str, configured: Sequence[str]) -> bool:
    """Whether what `load_group` took is among the `configured`: written there so, or found by its name there."""
    return spec in configured or (spec not in GROUPS and not _SPEC.fullmatch(spec))


def _named(name: str, specs: list[str]) -> ConsumerGroup:
    """Return the one of these with that name; why one could not be asked is told when no other has it."""
    failed: Misconfigured | None = None
    for spec in specs:
        try:
            group = load_group(spec)
        except Misconfigured as error:
            failed = failed or error
            continue
        if group.name == name:
            return group
    if failed is not None:
        raise failed
    raise Misconfigured(f"no group {name!r}: it is one of {', '.join([*GROUPS, *specs])}, or module:attribute")


def _refuse_twins(names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise Misconfigured(
            f"ORDERFLOW_GROUPS has two groups of the name {', '.join(twins)}; a name is one Kafka group"
        )


def _import(module_name: str) -> object:
    here = os.getcwd()  # noqa: PTH109 - sys.path holds plain strings
    if here not in sys.path:
        # Last, so that a folder of ours never shadows the standard library.
        sys.path.append(here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            message = f"no module {module_name}: run this in the folder that holds it, or put that folder on PYTHONPATH"
            raise Misconfigured(message) from None
        raise Misconfigured(f"module {module_name} cannot be imported: {_told(error)}") from error
    except Misconfigured:
        raise
    except Exception as error:
        raise Misconfigured(f"module {module_name} cannot be imported: {_told(error)}") from error


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"
