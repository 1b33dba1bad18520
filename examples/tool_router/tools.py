"""Eight real tools: each reads a task and returns its answer, or raises ``ValueError`` if it cannot."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from reasoning_gym.arithmetic.leg_counting import ANIMALS

__all__ = ["TOOLS", "use_tool"]


def add_up(question: str) -> str:
    """Sums and differences of whole numbers: ``4 - 1 - 7 =``."""
    found = re.search(r"(-?\d+(?: [+-] \d+)+) =", question)
    if found is None:
        raise ValueError("no sum in the question")
    terms = re.findall(r"([+-]?) ?(\d+)", found.group(1))
    return str(sum(-int(number) if sign == "-" else int(number) for sign, number in terms))


def multiply(question: str) -> str:
    """A product of whole numbers: ``18 * 43``."""
    found = re.search(r"\d+(?: \* \d+)+", question)
    if found is None:
        raise ValueError("no product in the question")
    return str(math.prod(int(number) for number in found.group().split(" * ")))


def count_letter(question: str) -> str:
    """Counts a letter in a text: ``letter "h" … in the text: "…"``."""
    found = re.search(r'letter "(.)" appear in the text: "(.*)"', question, re.DOTALL)
    if found is None:
        raise ValueError("no letter and text in the question")
    return str(found.group(2).lower().count(found.group(1).lower()))


def reverse_word(question: str) -> str:
    """The last word, backward: ``…: ammonia``."""
    found = re.search(r"backward.*: (\w+)$", question)
    if found is None:
        raise ValueError("no word to reverse in the question")
    return found.group(1)[::-1]


def common_divisor(question: str) -> str:
    """Greatest common divisor of the numbers listed."""
    found = re.search(r"numbers: (\d+(?:, \d+)+)", question)
    if found is None:
        raise ValueError("no list of numbers in the question")
    return str(math.gcd(*(int(number) for number in found.group(1).split(", "))))


def count_one_bits(question: str) -> str:
    """One bits of a number's binary representation."""
    found = re.search(r"binary representation of the number (\d+)", question)
    if found is None:
        raise ValueError("no number in the question")
    return str(int(found.group(1)).bit_count())


def factorize(question: str) -> str:
    """Prime factors, ascending, joined by ``×``."""
    found = re.search(r"prime factorization of (\d+)", question)
    if found is None:
        raise ValueError("no number in the question")
    rest, factors, divisor = int(found.group(1)), list[int](), 2
    while divisor * divisor <= rest:
        while rest % divisor == 0:
            factors.append(divisor)
            rest //= divisor
        divisor += 1
    if rest > 1:
        factors.append(rest)
    return " × ".join(map(str, factors))


def count_legs(question: str) -> str:
    """Legs of a list of animals: ``12 chickens, 13 beetles``."""
    found = re.search(r"if you have (.*)\?", question)
    if found is None:
        raise ValueError("no animals in the question")
    legs = 0
    for item in found.group(1).split(", "):
        count, name = item.split(" ", 1)
        legs += int(count) * ANIMALS[name if name in ANIMALS else name.removesuffix("s")]
    return str(legs)


TOOLS: dict[str, Callable[[str], str]] = {
    "A": add_up,
    "B": multiply,
    "C": count_letter,
    "D": reverse_word,
    "E": common_divisor,
    "F": count_one_bits,
    "G": factorize,
    "H": count_legs,
}
"""Letter -> tool. The letters' order is that of ``tasks.DATASETS``."""


def use_tool(letter: str, question: str) -> str | None:
    """The tool's answer; ``None`` when there is no such tool or it cannot make sense of the question."""
    tool = TOOLS.get(letter)
    if tool is None:
        return None
    try:
        return tool(question)
    except ValueError:
        return None
