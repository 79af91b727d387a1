"""Where the configs are, and what settings there are in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hydra
from omegaconf import OmegaConf


def conf_folder() -> Path:
    """Return where the configs are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def known_keys(config_name: str) -> list[str]:
    """Return every group and every dotted setting of a config as it is without overrides."""
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(conf_folder())):
        tree = OmegaConf.to_container(hydra.compose(config_name), resolve=False)
    groups = [folder.name for folder in conf_folder().iterdir() if folder.is_dir()]
    return groups + list(dotted(tree))


def dotted(tree: Any, prefix: str = "") -> list[str]:
    """Return the dotted name of every branch and leaf of nested mappings."""
    if not isinstance(tree, dict):
        return [prefix]
    return [prefix] * bool(prefix) + [
        key for name, branch in tree.items() for key in dotted(branch, f"{prefix}{'.' * bool(prefix)}{name}")
    ]
