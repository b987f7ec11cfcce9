"""A backend that notes which kernels are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from emulation.backend import EmulatedBackend

from petsc_gpufmt.backends.plan import Launch, Slot


class RecordingBackend(EmulatedBackend):
    """Notes which kernels are asked for; runs those that build a format, and so are needed for what comes after."""

    name = "recording"

    def __init__(self, scalar: Any, index: Any, folder: Path, resident_threads: int):
        super().__init__(scalar, index, folder, resident_threads=resident_threads)
        self.instances: list[tuple[str, str, tuple[int, ...]]] = []

    def function(self, stem: str, kernel: str, template_arguments: tuple[int, ...]) -> int:
        self.instances.append((stem, kernel, template_arguments))
        return len(self.instances)

    def run(self, launches: Sequence[Launch], slots: dict[Slot, Any] | None = None) -> None:
        for launch in launches:
            asked_for = self.instances[launch.function - 1]
            super().run([replace(launch, function=super().function(*asked_for))], slots)
