"""Whether the model hub is there, before its client is trusted to find out."""

from __future__ import annotations

import functools

TIMEOUT_S = 5


@functools.cache
def hub_answers() -> bool:
    """Whether the model hub can be reached, asked once for a few seconds: its own client tries for over a minute.

    Where it cannot, what earlier downloads left in the hub's cache still serves.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT_S)
    except Exception:  # of httpx, httpx2 or the system, by the version of the client
        return False
    return True
