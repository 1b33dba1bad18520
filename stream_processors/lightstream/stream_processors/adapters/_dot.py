"""A tree as Graphviz draws it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from lightstream.schemas.errors import LightstreamError

from ._node import SpanNode

__all__ = ["draw", "to_dot"]

DRAWING_TIMEOUT_S = 300.0
"""Graphviz takes about a minute for 10,000 spans."""
ID_CHARS_SHOWN = 8
ERROR_CHARS_SHOWN = 500


def to_dot(tree: SpanNode, interested_span_match: str | None = None) -> str:
    """The graph in DOT: a node per span, labelled with the end of its id, its name and its agent.

    Args:
        interested_span_match: regular expression; only spans whose names match are drawn, and those above them.
    """
    nodes = tree.traverse()
    shown = {id(node) for node in nodes}
    if interested_span_match is not None:
        wanted = re.compile(interested_span_match)
        shown = set()
        for node in reversed(nodes):  # children come before their parents
            if wanted.search(node.span.name) or any(id(child) in shown for child in node.children):
                shown.add(id(node))
    lines = ["digraph {", '  label="Trace Tree"']
    for node in nodes:
        if id(node) in shown:
            agent = node.agent_name()
            label = f"{node.id[-ID_CHARS_SHOWN:]} ({node.span.name})" + (f" [{agent}]" if agent is not None else "")
            lines.append(f"  {_quoted(node.id)} [label={_quoted(label)}]")
            lines += [f"  {_quoted(node.id)} -> {_quoted(c.id)}" for c in node.children if id(c) in shown]
    return "\n".join([*lines, "}", ""])


def draw(dot: str, filename: str) -> None:
    """Write ``<filename>.png`` with Graphviz's program ``dot``.

    Raises:
        LightstreamError: there is no such program, or it failed; the graph is then in ``<filename>.gv``.
    """
    problem = "Graphviz is not installed"
    program = shutil.which("dot")
    if program is not None:
        command = [program, "-Tpng", "-o", f"{filename}.png"]
        done = subprocess.run(
            command, input=dot, text=True, capture_output=True, timeout=DRAWING_TIMEOUT_S, check=False
        )
        if done.returncode == 0:
            return
        problem = f"Graphviz failed: {done.stderr.strip()[-ERROR_CHARS_SHOWN:]}"
    Path(f"{filename}.gv").write_text(dot, encoding="utf-8")
    raise LightstreamError(
        f"{problem}; the graph is in {filename}.gv.",
        next_step="Install Graphviz (its program is named dot), or draw the file elsewhere.",
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
