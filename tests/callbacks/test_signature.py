"""Signatures as the Standard Webhooks specification has them."""

from __future__ import annotations

import pytest

from chronoline.callbacks.signature import Signer
from chronoline.core.errors import InvalidInput


def test_the_example_of_the_specification() -> None:
    headers = Signer("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', wall_s=1614265330
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_AAAA", "not base64!", "é", "whsec_" + "A" * 100]
)
def test_secrets_that_are_refused(secret: str) -> None:
    with pytest.raises(InvalidInput, match="secret") as refused:
        Signer(secret)
    assert not secret or secret not in str(refused.value).replace("whsec_ and", "")
