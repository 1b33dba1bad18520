"""Trajectory-level sequences: turns merged where one prompt continues the previous sequence exactly."""

from ._merge import merge_segments, segments_of, transitions_of
from ._model import NO_VERSION, Segment, SegmentStart, Turn

__all__ = [
    "NO_VERSION",
    "Segment",
    "SegmentStart",
    "Turn",
    "merge_segments",
    "segments_of",
    "transitions_of",
]
