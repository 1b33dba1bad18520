"""Meaning of each reason code, for people."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .trajectory import DropReason, NoteReason

DROP_MEANINGS: Mapping[DropReason, str] = MappingProxyType(
    {
        DropReason.UNKNOWN: "Written by a newer version; this one does not know the code.",
        DropReason.NO_TOKEN_IDS: "The model server returned no token ids, so the sampled tokens are not known. "
        "Call it through the LLM proxy, with a server that can return them.",
        DropReason.EMPTY_RESPONSE: "The model answered without a single token: there is nothing to learn from.",
        DropReason.LOGPROBS_LENGTH_MISMATCH: "The number of log-probabilities differs from that of response tokens.",
        DropReason.BAD_TOKEN_IDS: "Token ids are negative, beyond int32, or not whole numbers.",
        DropReason.BAD_LOGPROBS: "A log-probability is not finite, above 0, or cut off.",
        DropReason.CALL_FAILED: "There is no usable answer. HTTP 499: the agent left before it had one; 400, 413, 415 "
        "or 422: the request was refused; others: the model server failed, or was not in time. The detail says more.",
        DropReason.DUPLICATE_CALL: "A second record of a call that is a triplet already (the same response id).",
        DropReason.CONFLICTING_SPAN: "A span with the ids of an earlier one but other content; the first one counts.",
        DropReason.ATTEMPT_NOT_FINAL: "The attempt was retried; only a rollout's last attempt is trained on.",
        DropReason.ATTEMPT_REFUSED: "The span names an attempt that the life cycle never opened.",
        DropReason.BAD_REWARD: "A reward that is not a number within float32, lacks its first dimension, or has "
        "too many dimensions or links; or a reward or credit rule failed.",
        DropReason.LATE: "Logged after its attempt was closed, and in no revision (yet): too long after the attempt "
        "began, or one of too many.",
        DropReason.NO_ROLLOUT: "The span names no rollout, or one that was never enqueued. `lightstream "
        "attach-trace` gives a trace to a rollout.",
        DropReason.TOO_LARGE: "The call does not fit a record: its tokens were cut out, or its trajectory was full "
        "(of tokens, or of spans).",
        DropReason.INSIDE_REWARD: "The call was made while computing a reward (a judge); such calls are left out.",
        DropReason.AGENT_NOT_SELECTED: "The call was made by an agent that is not among those to train.",
        DropReason.IMAGE_NOT_RECORDED: "It shows what the trainer cannot show the model: sound, video or a file, "
        "as the detail says, or an image by address, which is not fetched, or not as base64. Send images within the "
        "request, as data URLs (data:image/png;base64,…).",
    }
)
"""Every code of the view ``dropped`` and of the records' ``drops``."""

NOTE_MEANINGS: Mapping[NoteReason, str] = MappingProxyType(
    {
        NoteReason.UNKNOWN: "Written by a newer version; this one does not know the code.",
        NoteReason.PARENT_CYCLE: "Spans are among their own parents; they count as roots.",
        NoteReason.MISSING_PARENT: "A span's parent is not in the attempt; it counts as a root.",
        NoteReason.MISSING_TIME: "A span has no start or no end; the order of the log is used.",
        NoteReason.JOINED_CALL: "Two spans described one call (a framework's and the proxy's) and were joined.",
        NoteReason.UNMATCHED_LINK: "A reward names no call of the attempt, nor a span above one, and rewards nothing.",
        NoteReason.UNATTRIBUTED_CALL: "A span of LLM kind has neither tokens nor a response id, and matches no "
        "call that the proxy recorded.",
        NoteReason.INCOMPLETE_MESSAGES: "A call's span lost part of its conversation, to the limits of the tracer "
        "(`OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`, `OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`) or of a record; exports of text "
        "leave the call out.",
        NoteReason.CONTENT_LEFT_OUT: "A call's span has content that no chat message can hold; the detail names its "
        "kinds, and exports of text are without it.",
    }
)
"""Every code of the trajectories' ``notes``."""

SHARED_SPAN = "shared_span"
"""The code of the view ``shared_spans``: only the log of all partitions shows that a span is in several rollouts."""

SHARED_SPAN_MEANING = (
    "The span was logged under several rollouts; if it is a call, it is training data of each. Two writers disagree "
    "about it: look at the ids that reach it as attributes, trace state, path or header."
)
