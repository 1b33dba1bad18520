"""What all models here have in common: their JSON says what they hold."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["JsonModel"]


class JsonModel(BaseModel):
    """A model whose JSON keeps numbers that are infinite or not a number.

    They are written as ``Infinity``, ``-Infinity`` and ``NaN``, which Python's ``json`` reads and writes too; pydantic
    alone would make them ``null``.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")
