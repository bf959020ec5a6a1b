"""Who answers for an ending decides whether it is scored."""

from openwebrl_jax.core.causes import Cause

SCORED = {
    "done",
    "page_done",
    "gave_up",
    "format_error",
    "max_turns",
    "context_full",
    "response_truncated",
    "dawdled",
}


def test_the_policys_endings_are_scored_and_no_others():
    """R40: both ways; a new cause has to be entered here by hand."""
    assert {str(cause) for cause in Cause if cause.is_scored} == SCORED
    assert len(Cause) - len(SCORED) == 18
