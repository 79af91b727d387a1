"""Where the configs are, and what settings there are in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException


def conf_folder() -> Path:
    """Return where the configs are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def known_keys(config_name: str, overrides: Sequence[str] = ()) -> list[str]:
    """Return every group and every dotted setting of a config with the groups that `overrides` choose, as far as they can be."""
    groups = [folder.relative_to(conf_folder()).as_posix() for folder in conf_folder().rglob("*") if folder.is_dir()]
    chosen = [override for override in overrides if override.partition("=")[0] in groups]
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(conf_folder())):
        try:
            config = hydra.compose(config_name, chosen)
        except (HydraException, OmegaConfBaseException, ValueError):
            config = hydra.compose(config_name)
    return groups + list(dotted(OmegaConf.to_container(config, resolve=False)))


def dotted(tree: Any, prefix: str = "") -> list[str]:
    """Return the dotted name of every branch and leaf of nested mappings."""
    if not isinstance(tree, dict):
        return [prefix]
    return [prefix] * bool(prefix) + [
        key for name, branch in tree.items() for key in dotted(branch, f"{prefix}{'.' * bool(prefix)}{name}")
    ]
