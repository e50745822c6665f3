"""Login tokens for Amazon MSK with IAM: a request signed by AWS's own library is the token.

The credentials are found as by AWS's tools: environment, files, the role of a pod or machine.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

SIGNER = "aws_msk_iam_sasl_signer"
SESSION = "ackd"
"""The name under which a role is assumed; AWS's trail of calls shows it."""


def signer_installed() -> bool:
    """Whether the package that signs tokens can be loaded."""
    return importlib.util.find_spec(SIGNER) is not None


def token_callback(region: str, role_arn: str | None) -> Callable[[str], tuple[str, float]]:
    """Make what librdkafka calls for a new token, on a thread of its own: a token, and when it ends
    in Unix seconds. What it raises fails the login, and librdkafka asks again after ten seconds.
    """
    # With its AWS library it takes a third of a second to load.
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415

    def token(_config: str) -> tuple[str, float]:
        if role_arn is None:
            made, until_ms = MSKAuthTokenProvider.generate_auth_token(region)
        else:
            made, until_ms = MSKAuthTokenProvider.generate_auth_token_from_role_arn(
                region, role_arn, SESSION
            )
        return made, until_ms / 1000

    return token
