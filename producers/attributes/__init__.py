"""Attributes of spans: nested values made flat and back, values that OpenTelemetry takes, links and tags."""

from .flat import filter_and_unflatten_attributes, filter_attributes, flatten_attributes, unflatten_attributes
from .links import (
    extract_links_from_attributes,
    extract_tags_from_attributes,
    make_link_attributes,
    make_tag_attributes,
    query_linked_spans,
)
from .sanity import (
    check_attributes_sanity,
    format_exception_attributes,
    full_qualified_name,
    sanitize_attribute_value,
    sanitize_attributes,
    sanitize_list_attribute_sanity,
)

__all__ = [
    "check_attributes_sanity",
    "extract_links_from_attributes",
    "extract_tags_from_attributes",
    "filter_and_unflatten_attributes",
    "filter_attributes",
    "flatten_attributes",
    "format_exception_attributes",
    "full_qualified_name",
    "make_link_attributes",
    "make_tag_attributes",
    "query_linked_spans",
    "sanitize_attribute_value",
    "sanitize_attributes",
    "sanitize_list_attribute_sanity",
    "unflatten_attributes",
]
