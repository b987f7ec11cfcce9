"""Options measured best for a GPU model: those that ship with the package, under those measured on this machine.

A file holds one GPU model:
{"gpu": name, "formats": {format: {key: {option: value}}}, "measured": {format: {key: facts}}}.
The key says for which matrices of a format the options are the best (`Format.tuning_key`); the facts say how that was
found, and nothing reads them.
"""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petsc_gpufmt.user_cache import make_folder, untrusted, user_cache

if TYPE_CHECKING:
    from petsc_gpufmt.backends.backend import Backend

SHIPPED = Path(__file__).resolve().parent / "tuning_data"

FormatOptions = dict[str, dict[str, dict[str, int | str]]]
"""format -> key -> option -> value"""
Facts = dict[str, dict[str, dict[str, Any]]]
"""format -> key -> name -> value"""
PARTS = ("formats", "measured")


def tuned(backend: Backend, format_name: str, key: str) -> dict[str, int | str]:
    """The options measured best for `key` on the GPU of `backend`; empty if unknown, and where there is no GPU."""
    if backend.model is None:
        return {}
    return dict(known_options(backend.model).get(format_name, {}).get(key, {}))


@functools.cache
def known_options(model: str) -> FormatOptions:
    """All that is known of a GPU model, read once a process. A damaged file is a warning, and counts as empty.

    So does one in a cache that is not to be used.
    """
    known: FormatOptions = {}
    for path in (SHIPPED / file_name(model), cache_file(model)):
        refused = untrusted(str(path.parent))
        if refused:
            warnings.warn(refused, stacklevel=2)
            continue
        try:
            formats = read_tuning(path).get("formats", {})
        except ValueError as e:
            warnings.warn(f"{e}: its options are not used; correct it or remove it", stacklevel=2)
            continue
        for format_name, keys in formats.items():
            known.setdefault(format_name, {}).update(keys)
    return known


def file_name(model: str) -> str:
    """``nvidia_h200.json`` of "NVIDIA H200"."""
    return (re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_") or "unknown") + ".json"


def cache_file(model: str) -> Path:
    """Where this user's measurements of a GPU model are."""
    return Path(user_cache(), "tuning", file_name(model))


def read_tuning(path: Path) -> dict[str, Any]:
    """The document in a file, an empty one if there is no file; ValueError, naming the file, if damaged."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise ValueError(f"{path} cannot be read as a file of tuned options ({e})") from e
    if not _is_tuning(document):
        raise ValueError(
            f"{path} is not a file of tuned options: formats, keys and whole numbers or words were expected"
        )
    return document


def _is_tuning(document: Any) -> bool:
    """Whether options, numbers or words, are filed by format, key and name, and facts by format and key."""
    if not isinstance(document, dict):
        return False
    options, facts = ([document.get(part, {})] for part in PARTS)
    for depth in range(3):
        if not all(isinstance(item, dict) for item in options + (facts if depth < 2 else [])):
            return False
        options = [value for item in options for value in item.values()]
        facts = [value for item in facts for value in item.values()] if depth < 2 else facts
    return all(type(value) is int or (isinstance(value, str) and value.isidentifier()) for value in options)


def save_tuning(path: Path, model: str, formats: FormatOptions, measured: Facts) -> Path | None:
    """Add options, and facts on how they were found, to a file, in place of those of the same keys.

    Readers see the file before or after, never in between. Returns the new name of a damaged file, which is kept.
    """
    damaged = None
    try:
        document = read_tuning(path)
    except ValueError:
        damaged = path.with_name(path.name + ".damaged")
        os.replace(path, damaged)
        document = {}
    merged: dict[str, Any] = {"gpu": model}
    for part, added in zip(PARTS, (formats, measured), strict=True):
        merged[part] = document.get(part, {})
        for format_name, keys in added.items():
            merged[part].setdefault(format_name, {}).update(keys)
    make_folder(str(path.parent))
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(new, path)
    known_options.cache_clear()
    return damaged
