"""Lets torchvision be imported where its C extension cannot be loaded, for a test environment; run it with its Python.

The index has torchvision's wheel for CUDA, whose extension fails beside torch's wheel for the CPU. Then torchvision
cannot declare what two missing operators do. Image processors need none of them, so they are defined without a body.
"""

from __future__ import annotations

import importlib.abc
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

NAMES = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class Definer(importlib.abc.MetaPathFinder):
    """Finds no module; acts when torchvision is about to declare its operators."""

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "torchvision._meta_registrations" and not sys.modules["torchvision.extension"]._has_ops():
            import torch

            for name in NAMES:
                torch.library.define(f"torchvision::{name}", SCHEMA)


def install(folder: Path) -> None:
    """Every Python of the environment with this folder of packages imports this module first."""
    shutil.copy(__file__, folder)
    (folder / "torchvision_operators.pth").write_text("import torchvision_operators\n", encoding="utf-8")


if __name__ == "__main__":
    install(Path(sysconfig.get_path("purelib")))
else:
    sys.meta_path.insert(0, Definer())
