"""Log-probabilities from chunks of the logits, which are never there as a whole: verl's ``FusedLinearForPPO``.

Of 16,384 tokens and a vocabulary of 152,000, the logits have 10 GB in float32, and a pass with gradients needs them
several times. The backward pass computes each chunk again.
"""

from __future__ import annotations

from typing import Any, cast

from lightstream.schemas.errors import TrainingError

CHUNK_TOKENS = 256
"""verl has 512: with half of that, a pass of 16,384 tokens needs less than 0.3 of its logits, with all that is made of
a chunk, and a GPU multiplies about as fast as it reads the output layer."""

TOKENS = 9
"""Of the row that both ways are compared on."""

DIFFERENCE_MAX = {"float32": 1e-4, "bfloat16": 0.1}
"""Of log-probabilities of the same token."""


def compute_logits_in_chunks(model: Any) -> None:
    """Have a language model answer with log-probabilities where it is told a temperature, as verl tells it.

    verl's own switch would change all models of the class in this process.
    """
    import torch
    from verl.models.transformers.dense_common import CausalLMOutputForPPO
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    whole, answer = model.forward, cast("Any", CausalLMOutputForPPO)
    fused, head = cast("Any", FusedLinearForPPO)(chunk_size=CHUNK_TOKENS), model.lm_head
    of_head = head.forward

    def forward_head(states: Any, labels: Any = None, temperature: float = 1.0) -> Any:
        """Within the layer, as FSDP2 gathers its weights for its own pass alone."""
        return of_head(states) if labels is None else fused(states, head.weight, labels, temperature=temperature)

    def forward(*, temperature: float | None = None, shift_labels: Any = None, **inputs: Any) -> Any:
        if temperature is None:
            return whole(**inputs)
        states = model.model(**inputs)[0]
        labels = torch.roll(inputs["input_ids"], shifts=-1, dims=-1) if shift_labels is None else shift_labels
        if model.lm_head is not head:
            raise TrainingError(
                "the output layer has an adapter, so that its logits are not computed in chunks.",
                next_step="Leave lm_head out of lora_target_modules, or leave out chunked_logits.",
            )
        log_probs, entropy = head(states, labels, temperature)
        return answer(log_probs=log_probs, entropy=entropy)

    model.forward, head.forward = forward, forward_head


def check_chunks(module: Any, *, dtype: str) -> None:
    """Compare both ways on a small row. A pass of each, without gradients.

    Raises:
        TrainingError: they differ: the model makes more of its logits than a product with its output layer.
    """
    import torch

    device = next(module.parameters()).device
    vocabulary = int(module.config.get_text_config().vocab_size)
    ids = torch.arange(1, 1 + TOKENS, device=device)[None] * 7 % vocabulary
    positions, training = torch.arange(TOKENS, device=device)[None], module.training
    module.eval()
    inputs = {"input_ids": ids, "attention_mask": None, "position_ids": positions, "use_cache": False}
    try:
        with torch.no_grad(), torch.autocast(device.type, getattr(torch, dtype), enabled=dtype != "float32"):
            logits = module(**inputs).logits[0, :-1].float()
            found = module(**inputs, temperature=1.0, return_dict=True).log_probs[0, :-1].float()
    finally:
        module.train(training)
    expected = logits.log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    difference = float((found - expected).abs().max())
    if not difference <= DIFFERENCE_MAX[dtype]:
        raise TrainingError(
            f"the logits of {type(module).__name__} cannot be computed in chunks: log-probabilities differ by "
            f"{difference:.2g}.",
            next_step="Leave out VERL(chunked_logits=True), or verl's actor_rollout_ref.model.use_fused_kernels.",
        )
