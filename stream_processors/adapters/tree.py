"""The tree of an attempt's spans, with the methods of Agent Lightning's. Nothing in it recurses: any depth is fine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.types import Span, Triplet

from . import _finding, _payload
from ._node import SpanNode, build
from ._repair import repair
from .base import RewardMatchPolicy

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


LLM_CALL_MATCH = r"(openai\.chat\.completion|chat_model\.llm)"
"""Names of LLM spans as AgentOps, Weave and LangChain's handler give them."""


class TraceTree(SpanNode):
    """A span and the spans below it, with the methods of Agent Lightning's tree."""

    @classmethod
    def from_spans(cls, spans: Sequence[Span]) -> TraceTree:
        """The tree of ``spans``, under a root that is made up where they have several.

        Of spans with one id the first counts. A parent that is missing is made up. A cycle is cut at the link that
        closes it, with a warning.

        Raises:
            ValueError: there are no spans.
        """
        return build(cls, spans)

    def find_id(self, id: str) -> TraceTree | None:  # noqa: A002  # its name there
        """The first node of that id, depth first."""
        return next((node for node in self._nodes() if node.id == id), None)

    def add_child(self, child: Self) -> None:
        """Put ``child`` after the other children."""
        self.children.append(child)

    def names_tuple(self) -> tuple[str, list[Any]]:
        """Name of the span, with its agent in brackets, and the same of each child."""
        names: dict[int, tuple[str, list[Any]]] = {}
        for node in reversed(self.traverse()):
            agent = node.agent_name()
            name = node.span.name if agent is None else f"{node.span.name} [{agent}]"
            names[id(node)] = name, [names[id(child)] for child in node.children]
        return names[id(self)]

    def to_json(self) -> dict[str, Any]:
        """``id``, ``span`` and ``children``, as plain values."""
        values: dict[int, dict[str, Any]] = {}
        for node in reversed(self.traverse()):
            children = [values[id(child)] for child in node.children]
            values[id(node)] = {"id": node.id, "span": node.span.model_dump(), "children": children}
        return values[id(self)]

    def visualize(self, filename: str, interested_span_match: str | None = None) -> None:
        """Draw the tree into ``<filename>.png``, with Graphviz.

        Args:
            interested_span_match: regular expression; only spans whose names match are drawn, and those above them.

        Raises:
            LightstreamError: Graphviz is not installed, or failed; the graph is then in ``<filename>.gv``.
        """
        draw(to_dot(self, interested_span_match), filename)

    def repair_hierarchy(self) -> None:
        """Move spans that are next to their agent under it: to the shortest span that encloses them in time.

        This concerns the children of this node, or, while it has only one child, of that child. A span without times
        stays where it is, and so does one whose move would close a cycle. That a span was moved under an LLM call does
        not make it part of that call.
        """
        repair(self)

    def find_llm_calls(
        self,
        *,
        llm_call_match: str,
        agent_match: str | None,
        within_matching_subtree: str | None = None,
        within_reward: bool | None = None,
        within_llm_call: bool | None = None,
        existing_llm_call_response_ids: set[str] | None = None,
    ) -> list[tuple[TraceTree, str]]:
        """The spans that stand for LLM calls, each with the name of its agent, depth first.

        Args:
            llm_call_match: regular expression for names of LLM spans.
            agent_match: regular expression for agents; the nearest one above a call decides. ``None`` takes all.
            within_matching_subtree: agent around this node; ``None`` leaves out calls until an agent matches.
            within_reward: whether this node is within a reward; ``None`` takes calls within rewards too.
            within_llm_call: whether this node is within an LLM call; ``None`` takes every span with its own response
                id, else spans that describe one call (``core.assembly``) count once, the first of them.
            existing_llm_call_response_ids: responses that are known; those found are added.
        """
        found = _finding.find_calls(
            self,
            _finding.read_tree(self, llm_call_match),
            llm_call_match=llm_call_match,
            agent_match=agent_match,
            agent=within_matching_subtree,
            in_reward=within_reward,
            in_call=within_llm_call,
            known=set[str]() if existing_llm_call_response_ids is None else existing_llm_call_response_ids,
        )
        return [(call.node, call.agent) for call in found]

    def match_rewards(self, reward_match: str, llm_calls: list[TraceTree]) -> dict[str, float | None]:
        """Id of a call's span -> its reward, for calls that have one.

        A reward that links to calls (by response id, span id or attribute) is theirs; any other is for one call before
        it in the log, see :class:`RewardMatchPolicy`.
        """
        rewards = _finding.match_rewards(self, _finding.read_tree(self, llm_calls), llm_calls, reward_match)
        return {node.id: reward for node, reward in rewards}

    def extract_prompt_image_urls(self, prompt_raw_content: Any) -> list[str]:
        """URLs of the images among these messages (a list, a numbered mapping, or one message), in their order."""
        return _payload.image_urls(prompt_raw_content)

    def span_to_triplet(self, span: Span, agent_name: str) -> Triplet:
        """The triplet of one span, without its reward. Subclasses may add to it.

        Token ids are read in any dialect; lists are empty where the span has none.
        """
        return _payload.triplet_of(span, agent_name)

    def to_trajectory(
        self,
        llm_call_match: str = LLM_CALL_MATCH,
        agent_match: str | None = None,
        exclude_llm_call_in_reward: bool = True,
        dedup_llm_call: bool = True,
        reward_match: RewardMatchPolicy = RewardMatchPolicy.FIRST_OCCURRENCE,
        final_reward: float | None = None,
        _skip_empty_token_spans: bool = False,
    ) -> list[Triplet]:
        """The triplets of the tree's LLM calls, depth first.

        Token ids that a call's span does not have are taken from another span that describes the same call.

        Args:
            llm_call_match, agent_match: see :meth:`find_llm_calls`.
            exclude_llm_call_in_reward: leave out calls below rewards.
            dedup_llm_call: count spans that describe one call once.
            reward_match: what a reward without a link is for.
            final_reward: reward of the last triplet, in place of its own.
        """
        reading = _finding.read_tree(self, llm_call_match)
        calls = _finding.find_calls(
            self,
            reading,
            llm_call_match=llm_call_match,
            agent_match=agent_match,
            agent="*" if agent_match is None else None,
            in_reward=False if exclude_llm_call_in_reward else None,
            in_call=False if dedup_llm_call else None,
            known=set(),
        )
        found = [
            (call.node, triplet)
            for call in calls
            for triplet in _payload.completed(self.span_to_triplet(call.node.span, call.agent), call.calls)
            if _payload.has_tokens(triplet) or not _skip_empty_token_spans
        ]
        matched = _finding.match_rewards(self, reading, [node for node, _ in found], reward_match)
        rewards = {id(node): reward for node, reward in matched}
        triplets = [triplet.model_copy(update={"reward": rewards.get(id(node))}) for node, triplet in found]
        if final_reward is not None and triplets:
            triplets[-1] = triplets[-1].model_copy(update={"reward": final_reward})
        return triplets

    def __repr__(self) -> str:
        return f"TraceTree(id={self.id!r}, name={self.span.name!r}, children={len(self.children)})"
