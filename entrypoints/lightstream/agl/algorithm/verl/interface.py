"""VERL, by our options or by a configuration as verl has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.errors import SettingsError

from ._config import verl_of_config

__all__ = ["VERL"]


def VERL(  # noqa: N802  # the interface's name, a function there as well
    config: Mapping[str, Any] | None = None, trainer_cls: Any = None, daemon_cls: Any = None, **options: Any
) -> Any:
    """verl's GRPO, in the Trainer's process.

    Args:
        config: verl's configuration, nested (``{"data": {"train_batch_size": 32, …}, …}``). Keys about
            machines, memory and logging concern other processes here, and are named in the log.
        trainer_cls, daemon_cls: not here.
        options: instead of a configuration, those of ``lightstream.trainers.VERL``.

    Raises:
        SettingsError: a key of the configuration that would change what is learned has no counterpart; it is named.
    """
    if trainer_cls is not None or daemon_cls is not None:
        raise SettingsError(
            "VERL takes no trainer_cls and no daemon_cls here.",
            next_step="An algorithm of your own is a function of an AlgorithmContext: lightstream.trainers.algo.",
        )
    if config is None:
        from lightstream.trainers import VERL as Verl  # noqa: N811  # the class behind this function

        return Verl(**options)
    if options:
        raise SettingsError(f"VERL takes a configuration or options, not both: {', '.join(sorted(options))}.")
    return verl_of_config(config)
