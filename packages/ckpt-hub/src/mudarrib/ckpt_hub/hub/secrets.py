"""Keeping tokens out of every text that leaves this package."""

from __future__ import annotations

import re

_TOKENS = re.compile(r"\bhf_[A-Za-z0-9]{8,}|\b(?:Bearer|Basic) +[A-Za-z0-9._~+/=-]{8,}")
_HIDDEN = "<hidden>"
_SECRET_NAME = re.compile(r"token|secret|password|passwd|api_?key|credential", re.IGNORECASE)
# Settings that count text tokens, not keys.
_HARMLESS_NAME = re.compile(
    r"tokens|tokeniz|token_(?:id|type|size|length|weight|acc)|(?:bos|eos|pad|unk|sep|cls|mask)_token", re.IGNORECASE
)


def redact(text: str, token: str | None = None) -> str:
    """The text with `token`, and whatever looks like a token, blotted out."""
    if token:
        text = text.replace(token, _HIDDEN)
    return _TOKENS.sub(_HIDDEN, text)


def is_secret_name(name: str) -> bool:
    """Whether a setting of this name may hold a credential."""
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS_NAME.search(name)
