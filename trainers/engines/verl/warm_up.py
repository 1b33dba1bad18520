"""A few supervised steps before the first rollout, for a model that cannot answer at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

WarmUp: TypeAlias = Callable[[Any, Any], None]
"""Called with a Hugging Face model (float32, in training mode) and its tokenizer; changes the weights in place."""

Message: TypeAlias = Mapping[str, Any]
"""A message of a conversation: ``role``, ``content``, ``tool_calls`` with arguments as an object."""

IGNORED_LABEL = -100


def teach_answers(
    prompts: Sequence[str | Sequence[Message]],
    answers: Sequence[str] | Sequence[Sequence[str]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    steps: int = 15,
    batch_size: int = 32,
    learning_rate: float = 3e-3,
    end_turn: bool = True,
    read_prompts: bool = False,
    seed: int = 0,
) -> WarmUp:
    """A warm-up that teaches the form of an answer, not the right one: a random answer to each prompt.

    Args:
        prompts: what users say; each becomes a conversation of one message. Or conversations, as chat templates take
            them.
        answers: what may be answered: calls of tools too, as the model's family writes them. Or a list of them for
            each prompt.
        tools: offered in each conversation, as OpenAI's ``tools``.
        steps, batch_size, learning_rate: of AdamW; over the second half of the steps the rate falls to zero.
        end_turn: teach to end the turn after the answer.
        read_prompts: teach to continue the prompts as well, the way language models are pretrained: what tells prompts
            apart is then represented before the first reward, and rewards have less to teach.
        seed: of the pairing.

    Raises:
        ValueError: there are lists of answers, but not one for each prompt.
    """
    if not isinstance(answers[0], str) and len(answers) != len(prompts):
        raise ValueError(f"there are {len(prompts)} prompts, but {len(answers)} lists of answers")

    def warm_up(model: Any, tokenizer: Any) -> None:
        import torch

        choose = random.Random(seed)  # noqa: S311  # a pairing, not a secret
        encoded = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt),
                tools=None if tools is None else list(tools),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
            for prompt in prompts
        ]
        end = [tokenizer.eos_token_id] if end_turn else []
        targets = [
            [[*tokenizer.encode(text, add_special_tokens=False), *end] for text in answers_of_prompt]
            for answers_of_prompt in ([answers] if isinstance(answers[0], str) else answers)
        ]
        optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, 2 * (steps - step) / steps))
        for _ in range(steps):
            rows = [
                (encoded[i := choose.randrange(len(prompts))], choose.choice(targets[i % len(targets)]))
                for _ in range(batch_size)
            ]
            longest = max(len(prompt) + len(target) for prompt, target in rows)
            ids = torch.zeros(batch_size, longest, dtype=torch.int64)
            labels = torch.full_like(ids, IGNORED_LABEL)
            mask = torch.zeros_like(ids)
            for i, (prompt, target) in enumerate(rows):
                length = len(prompt) + len(target)
                ids[i, :length] = torch.tensor([*prompt, *target])
                labels[i, len(prompt) : length] = torch.tensor(target)
                mask[i, :length] = 1
            logits = model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits.float()
            loss: Any = _next_token_loss(logits, labels)
            if read_prompts:
                in_prompt = (labels == IGNORED_LABEL) & (mask == 1)
                loss = loss + _next_token_loss(logits, ids.masked_fill(~in_prompt, IGNORED_LABEL))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

    return warm_up


def _next_token_loss(logits: Any, labels: Any) -> Any:
    """Mean cross-entropy of the labelled tokens: ``logits`` (batch, time, vocabulary), ``labels`` (batch, time)."""
    import torch

    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten().to(logits.device), ignore_index=IGNORED_LABEL
    )
