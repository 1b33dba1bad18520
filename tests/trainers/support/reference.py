"""Training arithmetic from the definitions, slowly, in Python's floats. Shares no code with the batch builder.

Every sampled token of the made-up groups has an id of its own, so that a token is known wherever it turns up.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import PolicyVersionRun, RolloutMode, Trajectory, TripletRecord
from lightstream.trainers.rollouts.groups import Group

from .trajectories import make_trajectory

CLIP_LOW, CLIP_HIGH, DUAL_CLIP = 0.2, 0.28, 3.0


@dataclass(frozen=True)
class Options:
    """The options of ``VERL`` that change a batch, by their names there."""

    advantage: str = "grpo"
    per: str = "rollout"
    missing: str = "exclude"
    fill: float = 0.0
    normalisation: str = "token"
    constant_tokens: int = 7
    oldest: int | None = None
    prompt_max: int | None = None
    response_max: int | None = None
    overlong: str = "exclude"


@dataclass(frozen=True)
class Correction:
    """Options of the off-policy correction. ``bound`` of ``token_k1`` is the larger ratio, its inverse the smaller."""

    level: str | None
    threshold: float
    reject: str | None
    bound: float


@dataclass(frozen=True)
class Corrected:
    """A batch after the correction, and its metrics."""

    truth: Truth
    ess: float
    mean: float
    largest: float
    cut: float
    rejected: float


@dataclass
class Truth:
    """Sampled token -> its advantage, its weight, its log-probability as sampled; and what is left out, by call."""

    advantages: dict[int, float] = field(default_factory=dict[int, float])
    weights: dict[int, float] = field(default_factory=dict[int, float])
    sampled: dict[int, float] = field(default_factory=dict[int, float])
    reasons: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sequences: list[list[int]] = field(default_factory=list[list[int]])
    owner: list[str] = field(default_factory=list[str])
    rollouts_asked: int = 0
    sequences_asked: int = 0

    def corrected(self, proximal: dict[int, float], correction: Correction, options: Options) -> Corrected:
        """Three policies: clipped around the proximal one, its gap to the sampler weighed and rejected.

        As the engine, it looks at no sequence without a signal.
        """
        weight: dict[int, float] = dict.fromkeys(self.advantages, 1.0)
        kept: list[list[int]] = []
        seen: list[int] = []
        above: list[bool] = []  # of each token, or of each sequence
        rejected = 0
        for sequence in self.sequences:
            if not any(self.advantages[token] for token in sequence):
                kept.append(sequence)
                continue
            logs = {token: proximal[token] - self.sampled[token] for token in sequence}
            total = math.fsum(logs.values())
            k3 = {token: math.exp(log) - 1 - log for token, log in logs.items()}
            for token in sequence:
                ratio = math.exp(total if correction.level == "sequence" else logs[token])
                if correction.level:
                    weight[token] = min(ratio, correction.threshold)
                if correction.level == "token" or token == sequence[0]:
                    above.append(ratio > correction.threshold)
            if correction.reject == "token_k1":
                good = [
                    token for token in sequence if 1 / correction.bound <= math.exp(-logs[token]) <= correction.bound
                ]
            elif correction.reject == "seq_mean_k3":
                good = sequence if math.fsum(k3.values()) / len(k3) <= correction.bound else []
            else:
                good = sequence
            rejected += len(sequence) - len(good)
            kept.append(good)
            seen += sequence
        truth = Truth(sampled=proximal, sequences=kept)
        truth.rollouts_asked, truth.sequences_asked = self.rollouts_asked, self.sequences_asked
        truth.advantages = {token: self.advantages[token] for sequence in kept for token in sequence}
        if truth.advantages:
            pairs = [(sequence, name) for sequence, name in zip(kept, self.owner, strict=True) if sequence]
            _weigh(truth, [sequence for sequence, _ in pairs], [name for _, name in pairs], options)
        truth.weights = {token: share * weight[token] for token, share in truth.weights.items()}
        weights = [weight[token] for token in seen]
        mean = math.fsum(weights) / len(seen)
        ess = 1 / (math.fsum((w / mean) ** 2 for w in weights) / len(seen))
        return Corrected(truth, ess, mean, max(weights), sum(above) / len(above), rejected / len(seen))

    def loss(self, actor: dict[int, float], policy: str = "vanilla", kl: Kl | None = None) -> float:
        """The policy loss of that name, and the KL to the reference, each token by its weight."""
        return math.fsum(self.weights[t] * value for t, (value, _) in self._of_tokens(actor, policy, kl).items())

    def gradient(self, actor: dict[int, float], policy: str = "vanilla", kl: Kl | None = None) -> dict[int, float]:
        """Its derivative by each token's log-probability."""
        return {t: self.weights[t] * slope for t, (_, slope) in self._of_tokens(actor, policy, kl).items()}

    def _of_tokens(self, actor: dict[int, float], policy: str, kl: Kl | None) -> dict[int, tuple[float, float]]:
        found: dict[int, tuple[float, float]] = {}
        for sequence in self.sequences:
            mean = math.fsum(actor[t] - self.sampled[t] for t in sequence) / max(1, len(sequence))
            for t in sequence:
                value, slope = _objective(policy, self.advantages[t], actor[t], self.sampled[t], mean)
                if kl is not None:
                    more, steeper = _kl(kl.estimator, actor[t] - kl.reference[t])
                    value, slope = value + kl.coefficient * more, slope + kl.coefficient * steeper
                found[t] = value, slope
        return found


@dataclass(frozen=True)
class Kl:
    """The KL to a reference policy as part of the loss: verl's name of the estimator, and token -> log-probability."""

    coefficient: float
    estimator: str
    reference: dict[int, float]


def _kl(estimator: str, difference: float) -> tuple[float, float]:
    """An estimator of the KL and its slope; ``difference`` is log-probability minus reference."""
    name = estimator.removesuffix("+")
    if name in ("kl", "k1"):
        value, slope = difference, 1.0
    elif name == "abs":
        value, slope = abs(difference), math.copysign(1.0, difference)
    elif name in ("mse", "k2"):
        value, slope = difference**2 / 2, difference
    else:
        value, slope = math.exp(-difference) - 1 + difference, 1 - math.exp(-difference)
    return value, difference if estimator.endswith("+") else slope


def _objective(policy: str, advantage: float, actor: float, sampled: float, mean: float) -> tuple[float, float]:
    """A token's loss and its slope; ``mean`` is of the log-ratio over its sequence."""
    ratio = math.exp(mean if policy == "gspo" else actor - sampled)
    clipped = min(max(ratio, 1 - CLIP_LOW), 1 + CLIP_HIGH)
    if policy == "gpg":
        return -advantage * actor, -advantage
    if policy == "cispo":
        return -clipped * advantage * actor, -clipped * advantage
    if policy.startswith("dppo"):
        now, then = math.exp(actor), math.exp(sampled)
        if policy == "dppo_tv":
            moves = now - then <= CLIP_HIGH if advantage > 0 else now - then >= -CLIP_LOW
        else:
            apart = then * (sampled - actor) + (1 - then) * math.log((1 - then + 1e-8) / (1 - now + 1e-8))
            away = now > then if advantage > 0 else now < then
            moves = not away or apart <= (CLIP_HIGH if advantage > 0 else CLIP_LOW)
        slope = -advantage * min(ratio, DUAL_CLIP) if moves else 0.0
        return slope * actor, slope
    loss = max(-advantage * ratio, -advantage * clipped)
    dual = policy == "vanilla" and advantage < 0
    low, high = -math.inf if advantage > 0 else 1 - CLIP_LOW, 1 + CLIP_HIGH if advantage > 0 else math.inf
    if dual:
        loss, high = min(loss, -advantage * DUAL_CLIP), DUAL_CLIP
    return loss, -advantage * ratio if low < ratio < high else 0.0


def reference(groups: list[Group], options: Options) -> Truth:
    """The tokens to train on, each with its advantage and weight."""
    truth = Truth()
    scores = {group.group_id: _scores(group, options) for group in groups}
    if options.advantage.startswith("reinforce_plus_plus"):
        _whiten(groups, scores)
    sequences: list[list[int]] = []  # of each merged sequence, the trained tokens
    owner: list[str] = []
    for group in groups:
        for trajectory in group.trajectories:
            kept: list[TripletRecord] = []
            reasons = truth.reasons[trajectory.rollout_id] = []
            if not trajectory.triplets:
                reasons.append("no_calls")
            for triplet in trajectory.triplets:
                reason = _broken(triplet)
                if reason:
                    reasons.append(reason)
                else:
                    kept.append(triplet)
            merged = list(_merged(kept))
            if trajectory.mode is not RolloutMode.TEST:
                truth.rollouts_asked += 1
                truth.sequences_asked += max(1, len(merged))
            for sequence in merged:
                trained: list[int] = []
                for triplet in sequence:
                    judged = scores[group.group_id][trajectory.rollout_id, triplet.call_index]
                    outcome = _outside(triplet, options, greedy=judged == "not_for_training") or judged
                    if isinstance(outcome, str):
                        reasons.append(outcome)
                        continue
                    if outcome == 0 and options.advantage != "gae":
                        reasons.append("no_signal")
                    ids = _ints(triplet.response_token_ids)
                    logprobs = struct.unpack(f"<{len(ids)}f", triplet.response_logprobs or b"")
                    limit = len(ids) if options.response_max is None else options.response_max
                    for position, token in enumerate(ids[:limit]):
                        if triplet.response_mask[position]:
                            truth.advantages[token] = outcome
                            truth.sampled[token] = logprobs[position]
                            trained.append(token)
                if trained:
                    sequences.append(trained)
                    owner.append(trajectory.rollout_id)
    truth.sequences, truth.owner = sequences, owner
    _weigh(truth, sequences, owner, options)
    return truth


def _whiten(groups: list[Group], scores: dict[str, dict[tuple[str, int], float | str]]) -> None:
    """Mean 0 and variance 1 over the batch, token by token."""
    tokens = [
        value
        for group in groups
        for trajectory in group.trajectories
        for triplet in trajectory.triplets
        for sampled in triplet.response_mask
        if sampled and not isinstance(value := scores[group.group_id][trajectory.rollout_id, triplet.call_index], str)
    ]
    mean = math.fsum(tokens) / max(1, len(tokens))
    variance = math.fsum((value - mean) ** 2 for value in tokens) / max(1, len(tokens) - 1)
    for of_group in scores.values():
        for call, value in of_group.items():
            if not isinstance(value, str):
                of_group[call] = 0.0 if len(set(tokens)) < 2 else (value - mean) / math.sqrt(variance + 1e-8)


def _weigh(truth: Truth, sequences: list[list[int]], owner: list[str], options: Options) -> None:
    rollouts = {name: sum(len(s) for s, o in zip(sequences, owner, strict=True) if o == name) for name in owner}
    tokens = sum(map(len, sequences))
    for sequence, name in zip(sequences, owner, strict=True):
        weight = {
            "token": 1 / tokens,
            "rollout": 1 / truth.rollouts_asked / rollouts[name],
            "sequence": 1 / truth.sequences_asked / len(sequence),
            "constant": 1 / truth.rollouts_asked / options.constant_tokens,
        }[options.normalisation]
        truth.weights |= dict.fromkeys(sequence, weight)


def _scores(group: Group, options: Options) -> dict[tuple[str, int], float | str]:
    """(rollout, call) -> advantage, or why there is none."""
    outcomes: dict[tuple[str, int], float | str] = {}
    if options.advantage == "remax":
        return _against_greedy(group, options)
    if options.per == "rollout":
        rewards = {t.rollout_id: t.reward for t in group.trajectories}
        of_rollout = _advantages(rewards, options)
        for t in group.trajectories:
            for triplet in t.triplets:
                outcomes[t.rollout_id, triplet.call_index] = of_rollout[t.rollout_id]
        return outcomes
    for number in {triplet.call_index for t in group.trajectories for triplet in t.triplets}:
        rewards = {
            t.rollout_id: triplet.reward
            for t in group.trajectories
            for triplet in t.triplets
            if triplet.call_index == number
        }
        for rollout_id, outcome in _advantages(rewards, options).items():
            outcomes[rollout_id, number] = outcome
    return outcomes


def _against_greedy(group: Group, options: Options) -> dict[tuple[str, int], float | str]:
    def reward_of(t: Trajectory, call: int) -> float | None:
        values = [t.reward] if options.per == "rollout" else [c.reward for c in t.triplets if c.call_index == call]
        found = [v for v in values if v is not None and math.isfinite(v)]
        return found[0] if found else options.fill if options.missing == "fill" else None

    [greedy] = [t for t in group.trajectories if t.mode.value == "test"]
    outcomes: dict[tuple[str, int], float | str] = {}
    for t in group.trajectories:
        for call in (triplet.call_index for triplet in t.triplets):
            comparable = [
                other
                for other in group.trajectories
                if other is not greedy
                and (options.per == "rollout" or any(c.call_index == call for c in other.triplets))
            ]
            own, base = reward_of(t, call), reward_of(greedy, call)
            if t is greedy:
                outcomes[t.rollout_id, call] = "not_for_training"
            elif own is None:
                of_calls = {c.call_index: c.reward for c in t.triplets}
                given = t.reward if options.per == "rollout" else of_calls[call]
                outcomes[t.rollout_id, call] = "no_reward" if given is None else "not_finite"
            elif options.missing == "fail_group" and any(reward_of(other, call) is None for other in comparable):
                outcomes[t.rollout_id, call] = "group_failed"
            elif base is None:
                outcomes[t.rollout_id, call] = "not_comparable"
            else:
                outcomes[t.rollout_id, call] = own - base
    return outcomes


def _advantages(rewards: dict[str, float | None], options: Options) -> dict[str, float | str]:
    known = {name: r for name, r in rewards.items() if r is not None and math.isfinite(r)}
    if options.missing == "fill":
        known |= {name: options.fill for name in rewards if name not in known}
    outcomes: dict[str, float | str] = {}
    for name in rewards:
        if name not in known:
            outcomes[name] = "no_reward" if rewards[name] is None else "not_finite"
        elif options.missing == "fail_group" and len(known) < len(rewards):
            outcomes[name] = "group_failed"
        elif options.advantage in ("reinforce", "reinforce_plus_plus", "gae"):
            outcomes[name] = known[name]
        elif len(known) < 2:
            outcomes[name] = "not_comparable"
        elif len(set(known.values())) == 1:
            outcomes[name] = 0.0
        else:
            values = list(known.values())
            if options.advantage == "best_of_n":
                outcomes[name] = 1.0 if all(known[name] >= other for other in values) else "rejected"
                continue
            mean = math.fsum(values) / len(values)
            advantage = known[name] - mean
            if options.advantage == "grpo":
                variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
                advantage /= math.sqrt(variance) + 1e-6
            elif options.advantage == "rloo":
                others = [v for other, v in known.items() if other != name]
                advantage = known[name] - math.fsum(others) / len(others)
            outcomes[name] = advantage
    return outcomes


def _broken(triplet: TripletRecord) -> str | None:
    tokens = len(triplet.response_token_ids) / 4
    if len(triplet.prompt_token_ids) % 4 or tokens % 1 or len(triplet.response_mask) != tokens:
        return "misaligned"
    if triplet.response_logprobs is not None and len(triplet.response_logprobs) / 4 != tokens:
        return "misaligned"
    if not triplet.prompt_token_ids or not tokens or set(triplet.response_mask) == {0}:
        return "empty"
    return None


def _outside(triplet: TripletRecord, options: Options, *, greedy: bool) -> str | None:
    if triplet.response_logprobs is None:
        return "no_logprobs"
    tokens = len(triplet.response_token_ids) // 4
    if not all(math.isfinite(x) for x in struct.unpack(f"<{tokens}f", triplet.response_logprobs)):
        return "misaligned"
    if options.prompt_max is not None and len(triplet.prompt_token_ids) // 4 > options.prompt_max:
        return "too_long"
    if options.response_max is not None and tokens > options.response_max and options.overlong == "exclude":
        return "too_long"
    if options.oldest is not None and not greedy:
        versions: list[int | None] = [run.policy_version for run in triplet.policy_version_runs]
        versions = versions or [triplet.policy_version]
        if None in versions:
            return "unknown_version"
        if any(version is not None and version < options.oldest for version in versions):
            return "stale"
    return None


def _merged(triplets: list[TripletRecord]) -> list[list[TripletRecord]]:
    """Calls of one agent whose prompt begins with all that came before, prompt and response, belong together."""
    sequences: list[tuple[list[int], list[TripletRecord]]] = []
    for triplet in triplets:
        prompt = _ints(triplet.prompt_token_ids)
        whole = prompt + _ints(triplet.response_token_ids)
        fitting = [
            index
            for index, (ids, calls) in enumerate(sequences)
            if calls[0].agent_name == triplet.agent_name and prompt[: len(ids)] == ids
        ]
        if fitting:
            longest = max(fitting, key=lambda index: len(sequences[index][0]))
            sequences[longest] = (whole, [*sequences[longest][1], triplet])
        else:
            sequences.append((whole, [triplet]))
    return [calls for _, calls in sequences]


def _ints(packed: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(packed) // 4}i", packed))


def make_groups(chance: random.Random, *, greedy: bool = False) -> list[Group]:
    """Ragged groups with everything that can be odd about a rollout; with a ``greedy`` one that others are compared
    with."""
    fresh = count(1_000)
    return [_group(f"g{number}", chance, fresh, greedy=greedy) for number in range(chance.randint(1, 4))]


def _group(name: str, chance: random.Random, fresh: Iterator[int], *, greedy: bool) -> Group:
    members: list[Trajectory] = []
    for number in range(chance.choice([1, 2, 2, 4, 6])):
        reward = chance.choice([None, math.nan, math.inf, 0.0, 0.0, 1.0, 1.0, chance.gauss(0, 2), 0.1])
        members.append(_rollout(f"{name}-{number}", reward, chance, fresh))
    if greedy:
        reward = chance.choice([None, 0.0, 1.0, chance.gauss(0, 2)])
        baseline = _rollout(f"{name}-{len(members)}", reward, chance, fresh)
        members.append(baseline.model_copy(update={"mode": RolloutMode.TEST}))
    return Group(name, tuple(members))


def _rollout(name: str, reward: float | None, chance: random.Random, fresh: Iterator[int]) -> Trajectory:
    histories: list[list[int]] = []
    triplets: list[TripletRecord] = []
    for index in range(chance.choice([0, 1, 1, 2, 3, 5])):
        if histories and chance.random() < 0.7:  # continues the last state, or (fan-out) an earlier one
            prompt = chance.choice([histories[-1], chance.choice(histories)]) + [
                chance.randrange(500) for _ in range(chance.randint(0, 3))
            ]
        else:
            prompt = [chance.randrange(500) for _ in range(chance.randint(1, 6))]
        response = [next(fresh) for _ in range(chance.randint(1, 6))]
        histories.append(prompt + response)
        triplets.append(_call(index, prompt, response, chance))
    return make_trajectory(name, reward=reward, triplets=triplets)


def _call(index: int, prompt: list[int], response: list[int], chance: random.Random) -> TripletRecord:
    logprobs = [-chance.random() * 3 for _ in response]
    version = chance.choice([None, 2, 3, 3, 3])
    call = TripletRecord(
        call_index=index,
        span_id=f"{index:016x}",
        trace_id="0" * 32,
        agent_name=chance.choice([None, None, None, "other"]),
        policy_version=version,
        prompt_token_ids=pack_int32(prompt),
        response_token_ids=pack_int32(response),
        response_logprobs=pack_float32(logprobs),
        response_mask=bytes(chance.random() < 0.9 for _ in response),
        reward=chance.choice([None, 0.0, 1.0, chance.random()]),
    )
    odd = chance.random()
    if odd < 0.05:
        call = call.model_copy(update={"response_logprobs": None})
    elif odd < 0.1:
        call = call.model_copy(update={"response_logprobs": pack_float32([*logprobs, -1.0])})
    elif odd < 0.15:
        call = call.model_copy(update={"response_logprobs": pack_float32([math.nan] * len(logprobs))})
    elif odd < 0.3 and version is not None:
        runs = [PolicyVersionRun(first_token=0, policy_version=2), PolicyVersionRun(first_token=1, policy_version=3)]
        call = call.model_copy(update={"policy_version_runs": runs})
    return call
