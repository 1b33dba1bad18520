"""What a model server samples: tokens at random, their log-probabilities, and the text or the tool calls they make."""

from __future__ import annotations

import codecs
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

VOCABULARY = 152_064
"""Qwen2.5's, so that ids take several bytes."""

WORDS = (
    "a",
    "the ",
    "Ünïcode ",
    "🙂",
    "数学 ",
    "x\n\ny",
    '"quoted" ',
    "data: ",
    "\\",
    "e\u0301",
    "\U0001f469\u200d\U0001f4bb",
)
TOOLS = ("add", "look_up")
GROUP_TOKENS_MAX = 5
UNLIKELY_LOGPROB = -9999.0
"""What vLLM says instead of minus infinity, which JSON has not."""


@dataclass(frozen=True, slots=True)
class Token:
    """``data`` are its bytes: a part of a character, several characters, or nothing (an end mark)."""

    token_id: int
    logprob: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens in a row that are text (``tool`` is empty) or the arguments of one tool call."""

    tool: str
    text: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One choice, as the server keeps it."""

    index: int
    prompt_token_ids: tuple[int, ...]
    parts: tuple[Part, ...]
    finish_reason: str

    @property
    def tokens(self) -> list[Token]:
        return [token for part in self.parts for token in part.tokens]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if not part.tool)

    @property
    def tool_calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each."""
        return [(part.tool, part.text) for part in self.parts if part.tool]


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens that one chunk of a stream brings; ``text`` is what became readable by them, ``begins`` a tool call."""

    part: Part
    part_number: int
    tokens: tuple[Token, ...]
    text: str
    begins: bool
    last: bool


def sample(rng: random.Random, index: int, prompt: tuple[int, ...], *, tools: bool, structured: bool) -> Sampled:
    """One choice; ``tools`` may be called, ``structured`` text is a JSON object."""
    parts: list[Part] = []
    calls = rng.randrange(3) if tools else 0
    if not calls or rng.random() < 0.3:
        text = "".join(rng.choices(WORDS, k=rng.randrange(12)))
        if structured:
            text = json.dumps({"a": rng.randrange(1000), "why": text}, ensure_ascii=rng.random() < 0.5)
        parts.append(Part("", text, tuple(_tokens(rng, text))))
    for _ in range(calls):
        arguments = json.dumps({"at": rng.choice(WORDS), "n": rng.randrange(9)}, ensure_ascii=False)
        mark = _token(rng, b"")
        parts.append(Part(rng.choice(TOOLS), arguments, (mark, *_tokens(rng, arguments))))
    cut_off = rng.random() < 0.2 and any(part.tokens for part in parts)
    if not cut_off:
        last = parts[-1]
        parts[-1] = Part(last.tool, last.text, (*last.tokens, _token(rng, b"")))
    finish_reason = "length" if cut_off else "tool_calls" if calls else "stop"
    return Sampled(index, prompt, tuple(parts), finish_reason)


def groups(rng: random.Random, choice: Sampled) -> Iterator[Group]:
    """The choice in chunks of one to five tokens, each of one part, as a server's detokenizer hands them out."""
    for number, part in enumerate(choice.parts):
        decoder = codecs.getincrementaldecoder("utf-8")()
        begin = 0
        while begin < len(part.tokens):
            tokens = part.tokens[begin : begin + rng.randint(1, GROUP_TOKENS_MAX)]
            end = begin + len(tokens)
            last = number == len(choice.parts) - 1 and end == len(part.tokens)
            text = decoder.decode(b"".join(token.data for token in tokens))
            yield Group(part, number, tokens, text, begins=begin == 0, last=last)
            begin = end


def _tokens(rng: random.Random, text: str) -> Iterator[Token]:
    """The text's bytes, cut wherever it happens, within characters too."""
    data, begin = text.encode(), 0
    while begin < len(data):
        end = begin + rng.randint(1, 6)
        yield _token(rng, data[begin:end])
        begin = end


def _token(rng: random.Random, data: bytes) -> Token:
    drawn = rng.choice((0.0, UNLIKELY_LOGPROB)) if rng.random() < 0.05 else -rng.expovariate(1.0)
    (logprob,) = struct.unpack("<f", struct.pack("<f", drawn))  # servers have 32 bits
    return Token(rng.randrange(VOCABULARY), logprob, data)
