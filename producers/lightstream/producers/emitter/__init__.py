"""What an agent says about itself: rewards and annotations, as spans with Agent Lightning's names."""

from .annotation import SpanCoreFields, emit_annotation
from .attributes import make_link_attributes, make_tag_attributes
from .messages import emit_exception, emit_message, emit_object
from .reward import emit_reward

__all__ = [
    "SpanCoreFields",
    "emit_annotation",
    "emit_exception",
    "emit_message",
    "emit_object",
    "emit_reward",
    "make_link_attributes",
    "make_tag_attributes",
]
